// SPDX-License-Identifier: Apache-2.0

// What the journal and the index of a store say together.

#ifndef CKPTREE_KV_ROCKS_STANDING_H_
#define CKPTREE_KV_ROCKS_STANDING_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/journal/overlay.h"
#include "kv/journal/reader.h"
#include "kv/journal/replay.h"
#include "kv/options.h"
#include "kv/rocks/index_rebuild.h"
#include "kv/rocks/instance.h"

namespace ckptree::kv {

struct Standing {
  JournalContent journal;
  RowsFile rows;
  // Open for reading; null where `problem` says why it is of no use.
  std::shared_ptr<Instance> index;
  std::string problem;
  // How far each space of the index is.
  ChainPoint records;
  ChainPoint small;
  // The rows of later commits; null where there are none.
  std::shared_ptr<const Overlay> overlay;
  // Not OK: acknowledged commits are missing, or may be.
  absl::Status lost;
  // One line each: damage that cost no row.
  std::vector<std::string> damage;

  bool behind() const {
    return records.ordinal < journal.tip.ordinal ||
           small.ordinal < journal.tip.ordinal;
  }
};

// What is told of a damaged file of all rows beside a whole index.
std::string IndexHasRows(std::string_view damage);

// Opens the index in `role` and reads the journal from where the index ends.
// `beside_writer`: an error, or a problem, may mean that the writer did
// something right then. kNotFound without a journal. `all_files`: those, too,
// of which the index has everything: to know what is wrong with them. Without a
// writer whatever is wrong is so at two looks in a row.
absl::StatusOr<Standing> LookAtStanding(const Options& options,
                                        const std::string& directory, Role role,
                                        bool beside_writer,
                                        bool all_files = false);

// The index is of no use after all: reads the journal from the file of all rows
// on. kDataLoss where these are not whole either, naming both.
absl::Status ReadAllRows(const Options& options, const std::string& directory,
                         std::string problem, bool beside_writer,
                         Standing* standing);

// Makes an index from the rows of `standing`, the journal of the store
// `directory` and the tables of `db_directory` in the new directory `to`.
// REQUIRES: ReadAllRows().
absl::StatusOr<RebuildReport> MakeIndex(const Options& from_options,
                                        const std::string& directory,
                                        const std::string& db_directory,
                                        const Standing& standing,
                                        const std::string& to,
                                        const Options& to_options);

// The highest version in a key of a file of the index.
std::uint64_t HighestVersionInFiles(const Instance& instance);

// Whether the directory has a table that the index does not know, or the index
// one that is missing or cut: with segments missing it is to be made anew.
absl::StatusOr<bool> TablesDiffer(const Options& options,
                                  const Instance& instance);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_STANDING_H_
