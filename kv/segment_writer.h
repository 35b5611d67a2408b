// SPDX-License-Identifier: Apache-2.0

// Builds a segment: a sorted run of records in a file outside the database.

#ifndef CKPTREE_KV_SEGMENT_WRITER_H_
#define CKPTREE_KV_SEGMENT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// A finished, synced file that Database::Adopt takes in by renaming.
struct StagedSegment {
  schema::Space space = schema::Space::kChunks;
  std::string path;
  std::string first_key;
  std::string last_key;
  std::uint64_t file_bytes = 0;
};

// Needs no database: any process that sees the staging folder may build.
//
// Confined to one thread at a time; writers of different files are independent.
class SegmentWriter {
 public:
  static constexpr std::size_t kAlignment = 64;
  // A page: at most 0.4 % more of the disk.
  static constexpr std::size_t kLargeAlignment = 4096;
  static constexpr std::size_t kLargeValue = std::size_t{1} << 20;

  // Creates `path`, which must not exist. `expected_bytes` are reserved on disk
  // (0: nothing); kResourceExhausted where they cannot be. `space` is kLeaves
  // or kChunks.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> Create(
      const Options& options, schema::Space space, std::string path,
      std::uint64_t expected_bytes);

  // Removes the file unless Finish() succeeded.
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // REQUIRES of both: keys strictly ascending (kInvalidArgument otherwise),
  // value at most 64 MiB.
  absl::Status Add(std::string_view key, std::string_view value);

  // Adds `value` at a multiple of kAlignment in the file, so that it can be
  // used where it is mapped; one of kLargeValue or more at a multiple of
  // kLargeAlignment, so that the disk can put it into place. Where it
  // would not stand there a gap goes before it: a record of zeros whose key is
  // that of the record before and a zero byte. (A gap, not a pad in the value
  // itself: RocksDB takes a value in one piece, so a pad would cost a copy of
  // it.) REQUIRES also: not the first record, nor one whose key a gap would
  // have.
  absl::Status AddAligned(std::string_view key, std::string_view value);

  // Bytes written so far, roughly.
  std::uint64_t bytes() const;

  // Writes the rest and syncs the file (not its directory: Adopt does).
  absl::StatusOr<StagedSegment> Finish();

 private:
  struct Impl;
  explicit SegmentWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_SEGMENT_WRITER_H_
