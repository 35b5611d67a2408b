// SPDX-License-Identifier: Apache-2.0

// Where the new chunks of a part go: kept for the commit batch while they are
// few, into segments beyond that.

#ifndef CKPTREE_CORE_SAVE_BLOCK_SINK_H_
#define CKPTREE_CORE_SAVE_BLOCK_SINK_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/coding/block_coder.h"
#include "core/save/coding_choice.h"
#include "kv/options.h"
#include "kv/segment_writer.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/segment_record.h"

namespace ckptree::internal {

// What rides in the commit batch: the new bytes of values of a part, and its
// leaf records, up to so many each. The parts of a step share one batch.
struct SmallLimits {
  std::uint64_t bytes = 1 << 20;
  std::uint64_t record_bytes = 256 << 10;

  static SmallLimits ForParts(std::uint64_t parts) {
    constexpr std::uint64_t kBatch = 6 << 20;
    SmallLimits limits;
    limits.bytes = std::min(limits.bytes, kBatch / parts);
    limits.record_bytes = std::min(limits.record_bytes, kBatch / 4 / parts);
    return limits;
  }
};

// A segment ends where it reaches one of these. They are numbers of the engine,
// not options: only tests set others.
struct SegmentLimits {
  // Segments are the unit in which dead bytes are freed whole. Grows where a
  // part would run out of builders.
  std::uint64_t bytes = std::uint64_t{256} << 20;
  std::uint32_t blocks = schema::kMaxSequence;
  // Of the table, which is one record: half of what one may have.
  std::uint64_t table_bytes = schema::kMaxRecordBytes / 2;
};

// A finished segment and the row that will stand for it.
struct BuiltSegment {
  kv::StagedSegment staged;
  std::string row_key;
  std::string row_value;
  std::uint64_t blocks = 0;
  bool coded = false;  // At least one of them.
};

// What every segment of one part of one save has in common.
struct SegmentSettings {
  kv::Options kv_options;
  std::string staging;                         // Folder of this attempt.
  std::function<absl::Status()> make_staging;  // See PartTask.
  schema::SegmentHeader header;  // Space and builder are filled in.
  // See PartTask.
  std::function<void(const BuiltSegment&)> on_built;
  SegmentLimits limits;
  SmallLimits small;
  // So many new bytes are likely to come: segments are as large as that needs,
  // and reserve their share of it. 0 where nobody knows.
  std::uint64_t bytes_expected = 0;
  // Never more than these, but for the padding of packs.
  std::uint64_t bytes_at_most = 0;
  CodingChoice::Way coding;
};

// The file of a segment in its staging folder.
std::string SegmentPath(const std::string& staging, schema::Space space,
                        std::uint16_t part, std::uint8_t builder);

// Builds one segment: header first, blocks, table last.
//
// Confined to one thread at a time.
class SegmentBuilder {
 public:
  static absl::StatusOr<std::unique_ptr<SegmentBuilder>> Open(
      const SegmentSettings& settings, schema::Space space,
      std::uint8_t builder, std::uint64_t reserve_bytes);

  // Adds a block; `sequence` ascends. Chunks (aligned in the file) or records
  // by the segment's space. `value` is the payload, or the coding of one of
  // `payload_bytes`; `slices` are what the table says of it.
  absl::Status Add(std::uint32_t sequence, std::string_view value,
                   std::uint64_t payload_bytes,
                   std::span<const schema::TableSlice> slices);

  std::uint64_t bytes() const { return row_.bytes; }
  // At most so many bytes has its table by now.
  std::uint64_t table_bytes() const { return table_bytes_; }
  std::uint8_t builder() const { return header_.builder; }
  absl::StatusOr<BuiltSegment> Finish();

 private:
  SegmentBuilder(schema::SegmentHeader header,
                 std::unique_ptr<kv::SegmentWriter> writer)
      : header_(std::move(header)), writer_(std::move(writer)) {}

  schema::SegmentHeader header_;
  std::unique_ptr<kv::SegmentWriter> writer_;
  schema::SegmentTableBuilder table_;
  std::uint64_t table_bytes_ = 0;
  schema::SegmentRow row_;
  bool coded_ = false;
};

// Takes chunks in any order from many threads. Thread-safe until Seal().
class BlockSink {
 public:
  // A chunk's place, once Seal() was called.
  struct Place {
    schema::Space place = schema::Space::kChunks;
    std::uint32_t n = 0;
  };

  explicit BlockSink(SegmentSettings settings);
  ~BlockSink();

  // Keeps or writes one chunk; returns its index for place(). `order` sorts the
  // chunks of a small save, so that equal saves are stored equally.
  absl::StatusOr<std::uint32_t> Write(std::uint64_t order,
                                      std::span<const std::byte> payload,
                                      std::vector<schema::TableSlice> slices);

  // No Write() may run or follow: every chunk has its place.
  void Seal();

  // Ends every segment (synced). What Seal() settled may be read at the same
  // time.
  absl::Status Finish();

  const Place& place(std::uint32_t index) const { return places_[index]; }
  // After Seal(): no segment was begun.
  bool all_small() const {
    const absl::MutexLock lock(&mu_);
    return lanes_.empty();
  }
  // The chunks that ride in the batch: BlockNumber and payload, ascending.
  std::vector<std::pair<std::uint32_t, std::string>>& small() { return small_; }
  std::vector<BuiltSegment>& segments() { return segments_; }
  std::uint64_t bytes() const { return bytes_; }
  // After Finish(): what the lanes did. `coded_bytes` and `coded_to` are there
  // in any case, the times where they are asked for.
  LaneTimes times() const;
  // Those of chunks that were written coded, and what they take.
  std::uint64_t coded_bytes() const { return coded_bytes_.load(); }
  std::uint64_t coded_to() const { return coded_to_.load(); }

 private:
  struct Pending {
    std::uint64_t order;
    std::uint32_t index;
    std::string payload;
    std::vector<schema::TableSlice> slices;
  };
  // One task's segment under construction.
  struct Lane {
    std::unique_ptr<SegmentBuilder> builder;
    std::uint32_t sequence = 0;
    std::uint64_t roll_bytes = 0;  // The segment ends beyond this.
    BlockCoder coder;
    bool tried = false;  // The coder, where nothing is coded.
    LaneTimes times;
  };

  // Of the segment of this builder.
  std::uint64_t RollBytes(int builder) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasIdleLane() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return !idle_.empty();
  }

  absl::Status WriteTo(Lane* lane, std::uint32_t index,
                       std::string_view payload,
                       std::span<const schema::TableSlice> slices);
  absl::Status FinishLane(Lane* lane);
  // The value for `payload`: that itself, or its coding, which is good until
  // the next call.
  std::string_view ValueOf(std::string_view payload,
                           std::span<const schema::TableSlice> slices,
                           Lane* lane);
  // Runs what writes, and notes in the lane what its time went into.
  absl::Status Timed(Lane* lane, absl::FunctionRef<absl::Status()> write);

  const SegmentSettings settings_;

  mutable absl::Mutex mu_;
  std::vector<Place> places_;  // Guarded by mu_ until Seal().
  std::vector<Pending> pending_ ABSL_GUARDED_BY(mu_);
  bool buffering_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<std::unique_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mu_);
  std::vector<Lane*> idle_ ABSL_GUARDED_BY(mu_);
  int next_builder_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t bytes_ = 0;  // Guarded by mu_ until Seal().
  std::atomic<std::uint64_t> coded_bytes_{0};
  std::atomic<std::uint64_t> coded_to_{0};

  std::vector<std::pair<std::uint32_t, std::string>> small_;
  std::vector<BuiltSegment> segments_;  // Guarded by mu_ until Finish().
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_BLOCK_SINK_H_
