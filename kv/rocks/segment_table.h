// SPDX-License-Identifier: Apache-2.0

// A table of a directory, on its own, whatever became of it.

#ifndef CKPTREE_KV_ROCKS_SEGMENT_TABLE_H_
#define CKPTREE_KV_ROCKS_SEGMENT_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/rocks/record_scan.h"
#include "kv/rocks/steady_file.h"
#include "kv/salvage.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Of a segment, or of rows. Thread-compatible.
class SegmentTable {
 public:
  // kDataLoss: nobody can tell what it holds. `space_of` is asked about values.
  static absl::StatusOr<SegmentTable> Open(const Options& options,
                                           const std::string& path,
                                           SegmentSpaceFn space_of);

  const std::string& path() const { return path_; }
  schema::Space space() const { return space_; }
  const std::string& first_key() const { return first_key_; }
  const std::string& last_key() const { return last_key_; }

  // OK where RocksDB can open it and read its first and last key, if not at
  // once then a second time: it can be taken in as it is. What is between is
  // not looked at.
  const absl::Status& damage() const { return damage_; }

  // All that are found in it; of segments those whose keys ascend. The first
  // call reads the whole file, which then stays open until Forget().
  absl::StatusOr<const std::vector<FoundRecord>*> Records();
  // REQUIRES: a record of Records(), before Forget(). IsUnsteady(), of both:
  // each read of the file gave other bytes.
  absl::StatusOr<std::string> Read(const FoundRecord& record) const;

  // Closes the file and forgets its records.
  void Forget();

 private:
  absl::Status OpenWithRocksDB(const Options& options, SegmentSpaceFn space_of);
  absl::Status Recognise(SegmentSpaceFn space_of);
  absl::Status OpenFile();
  // An error where what was read of the open file is not to be used.
  absl::Status Steady() const;

  Options options_;
  std::string path_;
  schema::Space space_ = schema::Space::kRecords;
  std::string first_key_;
  std::string last_key_;
  absl::Status damage_;
  std::shared_ptr<rocksdb::FSRandomAccessFile> file_;
  Unsteady unsteady_;  // Of the file.
  std::uint64_t bytes_ = 0;
  std::optional<std::vector<FoundRecord>> records_;
};

// Writes the records of `tables`, each key once, as one segment at `path`. Keys
// of those that are not proven are added to `unproven`.
absl::Status WriteTogether(const Options& options,
                           std::span<SegmentTable> tables,
                           const std::string& path,
                           std::vector<std::string>* unproven);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SEGMENT_TABLE_H_
