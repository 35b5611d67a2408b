// SPDX-License-Identifier: Apache-2.0

// A database that can be read, made from what is left of one that cannot.

#ifndef CKPTREE_KV_SALVAGE_H_
#define CKPTREE_KV_SALVAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

struct SalvageReport {
  // The journal was not whole, and the index was read, too: what commits that
  // are lost had removed may be back.
  bool rebuilt = false;
  // Some rows may be missing; else all are here that the last commit left.
  bool rows_missing = false;
  // No version above it was used, as far as the journal says.
  std::uint64_t version_ceiling = 0;
  std::uint64_t rows = 0;      // Of `records` and `small`.
  std::uint64_t segments = 0;  // Files of `leaves` and `chunks`.
  // What was there and could not be read, one line each.
  std::vector<std::string> losses;
  // What was met and cost nothing.
  std::vector<std::string> notes;
};

// The space of a segment by its first record's value; nothing where the value
// is not of a segment.
using SegmentSpaceFn =
    absl::FunctionRef<std::optional<schema::Space>(std::string_view value)>;

// The uuid that a row of `records` gives its store; empty: it gives none.
using StoreUuidFn = absl::FunctionRef<std::string(std::string_view key,
                                                  std::string_view value)>;

// Makes `to`/db, to be opened by Mode::kReadSalvaged, from the
// files of the store `from`: all rows that can be read, and every segment. Rows
// of an index that is another store's, or of another chain of commits than the
// journal's, are not of it.
// `to` must not exist and be in a directory that exists.
//
// Nothing of `from` is changed. Its tables are linked where the file system
// allows that, and never written to: RocksDB only reads, renames and unlinks
// tables, unless it may write a sequence number into them, and it may not.
//
// `locked`: the caller holds the lock of `from`.
//
// kNotFound: no database there. kUnavailable: a live writer has it. kCancelled.
absl::StatusOr<SalvageReport> Salvage(const std::string& from,
                                      const std::string& to,
                                      const Options& options, bool locked,
                                      SegmentSpaceFn space_of,
                                      StoreUuidFn uuid_of,
                                      absl::FunctionRef<bool()> cancelled);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_SALVAGE_H_
