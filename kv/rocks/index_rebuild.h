// SPDX-License-Identifier: Apache-2.0

// A new index from rows that are kept elsewhere and the tables of an old one.

#ifndef CKPTREE_KV_ROCKS_INDEX_REBUILD_H_
#define CKPTREE_KV_ROCKS_INDEX_REBUILD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/journal/replay.h"
#include "kv/journal/row.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

using RowSink =
    absl::FunctionRef<absl::Status(const RowKey& key, const RowValue& value)>;

struct RebuildSource {
  // A db/ directory, whatever became of it: only its tables are looked at.
  std::string db_directory;
  // Where files may be that changed places with some of it, of any name.
  std::string journal_directory;
  // Below which it is read.
  Options options;
  // Gives every living row once; there must be one of `records`.
  std::function<absl::Status(RowSink sink)> rows;
  // The bytes of a block of array bytes in `small`, where they are at hand.
  std::function<absl::StatusOr<std::optional<std::string>>(const RowKey& key)>
      find_block;
  // The same with damage in them, for one that is nowhere whole. May be null.
  std::function<absl::StatusOr<std::optional<std::string>>(const RowKey& key)>
      find_damaged_block;
  std::function<std::optional<schema::Space>(std::string_view value)> space_of;
  // Tables that the disk cannot give (EIO) go along as what RocksDB does not
  // know, kUnreadableTablePrefix before their names: whoever makes the index
  // anew when the disk gives them again finds them there.
  bool keeps_unreadable = false;
};

// Whether a file ends as a table does: one that changed places with another
// file has the name of that.
bool IsTable(const Options& options, const std::string& path);

// Has `source` find blocks in the records of a journal, whole and damaged ones.
// `blocks` must outlive it.
void FindIn(const JournalBlocks& blocks, RebuildSource* source);

struct RebuildReport {
  std::uint64_t rows = 0;    // Of `records` and `small`, blocks among them.
  std::uint64_t blocks = 0;  // Found in tables of the old index.
  std::uint64_t tables = 0;  // Of `leaves` and `chunks`.
  // Rows of blocks that nobody has: they are not in the new index.
  std::vector<RowKey> missing;
  // What was there and could not be read, one line each; one for all blocks of
  // `missing`.
  std::vector<std::string> losses;
  // Tables of which nothing can be read; they may have had rows alone.
  std::vector<std::string> unread;
  // Keys of `chunks` whose records were found, and whose checksum does not say
  // that they are whole.
  std::vector<std::string> unproven;
  // What was met and cost nothing.
  std::vector<std::string> notes;
};

// Makes the database `to`, which must not exist, synced: all rows, and each
// table of `leaves` and `chunks` that is there, by a second name where it is
// whole. A table whose frame is damaged is written anew from the records that
// are found in it, and so are tables whose keys overlap: what is left of a
// compaction and what went into it. Whether anything refers to a table is not
// asked. Two whole tables of the same leaf records are its two copies.
//
// Nothing of `source` is changed. What was made until an error stays.
// kAlreadyExists, kCancelled, and errors of the disk.
absl::StatusOr<RebuildReport> RebuildIndex(const RebuildSource& source,
                                           const std::string& to,
                                           const Options& options,
                                           absl::FunctionRef<bool()> cancelled);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_INDEX_REBUILD_H_
