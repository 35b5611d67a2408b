// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "core/save/block_sink.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/process/thread_times.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

constexpr int kMaxBuilders = 256;

// So that at most these are not full when the numbers run out.
constexpr std::size_t kMaxLanes = 32;

// What an entry adds to the encoded table, or more.
std::uint64_t TableBytes(std::span<const schema::TableSlice> slices) {
  std::uint64_t bytes = 10;  // Its number, how many slices.
  for (const schema::TableSlice& slice : slices) {
    bytes += 2 * sizeof(base::Digest) + 20;
    for (const auto* dims : {&slice.start, &slice.shape}) {
      for (const std::int64_t dim : *dims) {
        // As a varint; a negative one would have 10.
        const auto bits = static_cast<std::uint64_t>(
            std::bit_width(static_cast<std::uint64_t>(dim) | 1));
        bytes += (bits + 6) / 7;
      }
    }
  }
  return bytes;
}

}  // namespace

std::string SegmentPath(const std::string& staging, schema::Space space,
                        std::uint16_t part, std::uint8_t builder) {
  return absl::StrFormat("%s/%s-%d-%d.sst", staging, schema::NameOf(space),
                         part, builder);
}

absl::StatusOr<std::unique_ptr<SegmentBuilder>> SegmentBuilder::Open(
    const SegmentSettings& settings, schema::Space space, std::uint8_t builder,
    std::uint64_t reserve_bytes) {
  CKPTREE_RETURN_IF_ERROR(settings.make_staging());
  schema::SegmentHeader header = settings.header;
  header.space = space;
  header.builder = builder;
  const std::string path =
      SegmentPath(settings.staging, space, header.part, builder);
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<kv::SegmentWriter> writer,
                           kv::SegmentWriter::Create(settings.kv_options, space,
                                                     path, reserve_bytes));
  CKPTREE_RETURN_IF_ERROR(writer->Add(
      schema::BlockKey(header.version, header.part,
                       schema::BlockNumber(builder, schema::kHeaderSequence)),
      schema::EncodeSegmentHeader(header)));
  return std::unique_ptr<SegmentBuilder>(
      new SegmentBuilder(std::move(header), std::move(writer)));
}

absl::Status SegmentBuilder::Add(std::uint32_t sequence, std::string_view value,
                                 std::uint64_t payload_bytes,
                                 std::span<const schema::TableSlice> slices) {
  const std::uint32_t n = schema::BlockNumber(header_.builder, sequence);
  const std::string key = schema::BlockKey(header_.version, header_.part, n);
  CKPTREE_RETURN_IF_ERROR(header_.space == schema::Space::kChunks
                              ? writer_->AddAligned(key, value)
                              : writer_->Add(key, value));
  if (row_.block_count == 0) row_.first_n = n;
  row_.last_n = n;
  ++row_.block_count;
  row_.bytes += payload_bytes;
  coded_ = coded_ || value.size() != payload_bytes;
  table_bytes_ += TableBytes(slices);
  table_.Add(n, slices);
  return absl::OkStatus();
}

absl::StatusOr<BuiltSegment> SegmentBuilder::Finish() {
  const std::uint32_t n =
      schema::BlockNumber(header_.builder, schema::kTableSequence);
  CKPTREE_RETURN_IF_ERROR(
      writer_->Add(schema::BlockKey(header_.version, header_.part, n),
                   std::move(table_).Encode()));
  BuiltSegment built;
  CKPTREE_ASSIGN_OR_RETURN(built.staged, writer_->Finish());
  built.row_key = schema::SegmentKey(header_.version, header_.part,
                                     header_.space, header_.builder);
  built.row_value = schema::EncodeSegmentRow(row_);
  built.blocks = row_.block_count;
  built.coded = coded_;
  return built;
}

BlockSink::BlockSink(SegmentSettings settings)
    : settings_(std::move(settings)) {}

BlockSink::~BlockSink() = default;

absl::StatusOr<std::uint32_t> BlockSink::Write(
    std::uint64_t order, std::span<const std::byte> payload,
    std::vector<schema::TableSlice> slices) {
  const std::string_view bytes(reinterpret_cast<const char*>(payload.data()),
                               payload.size());
  std::uint32_t index = 0;
  Lane* lane = nullptr;
  std::vector<Pending> flushed;
  {
    absl::MutexLock lock(&mu_);
    index = static_cast<std::uint32_t>(places_.size());
    places_.emplace_back();
    bytes_ += payload.size();
    if (buffering_) {
      if (bytes_ <= settings_.small.bytes) {
        pending_.push_back(
            {order, index, std::string(bytes), std::move(slices)});
        return index;
      }
      buffering_ = false;
      flushed.swap(pending_);
    }
    if (idle_.empty() && lanes_.size() >= kMaxLanes) {
      mu_.Await(absl::Condition(this, &BlockSink::HasIdleLane));
    }
    if (idle_.empty()) {
      lane = lanes_.emplace_back(std::make_unique<Lane>()).get();
    } else {
      lane = idle_.back();
      idle_.pop_back();
    }
  }
  absl::Status status;
  for (Pending& block : flushed) {
    status.Update(WriteTo(lane, block.index, block.payload, block.slices));
  }
  status.Update(WriteTo(lane, index, bytes, slices));
  absl::MutexLock lock(&mu_);
  idle_.push_back(lane);
  if (!status.ok()) return status;
  return index;
}

// Half of the numbers are for segments of the usual size, or of the size that
// what is expected needs. Where those did not do, 64 more hold all there can
// be; should that be wrong, each of them holds a 64th more than there was.
std::uint64_t BlockSink::RollBytes(int builder) const {
  std::uint64_t bytes = std::max<std::uint64_t>(
      settings_.limits.bytes, settings_.bytes_expected / (kMaxBuilders / 2));
  if (builder >= kMaxBuilders / 2) {
    bytes = std::max(
        bytes, std::max(settings_.bytes_at_most, bytes_) / (kMaxBuilders / 4));
  }
  return bytes;
}

absl::Status BlockSink::WriteTo(Lane* lane, std::uint32_t index,
                                std::string_view payload,
                                std::span<const schema::TableSlice> slices) {
  if (lane->builder == nullptr) {
    int builder = 0;
    std::uint64_t reserve = 0;
    {
      absl::MutexLock lock(&mu_);
      builder = next_builder_++;
      lane->roll_bytes = RollBytes(builder);
      // What may still come, shared by the lanes there are; at least this.
      const std::uint64_t left = settings_.bytes_expected > bytes_
                                     ? settings_.bytes_expected - bytes_
                                     : 0;
      reserve =
          std::min(lane->roll_bytes, left / lanes_.size()) + payload.size();
    }
    if (builder >= kMaxBuilders) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "a part of a save has at most %d segments of %d blocks: its arrays "
          "need larger chunks",
          kMaxBuilders, settings_.limits.blocks));
    }
    CKPTREE_ASSIGN_OR_RETURN(
        lane->builder,
        SegmentBuilder::Open(settings_, schema::Space::kChunks,
                             static_cast<std::uint8_t>(builder), reserve));
    lane->sequence = 0;
  }
  const std::uint32_t sequence = ++lane->sequence;
  const std::string_view value = ValueOf(payload, slices, lane);
  CKPTREE_RETURN_IF_ERROR(Timed(lane, [&] {
    return lane->builder->Add(sequence, value, payload.size(), slices);
  }));
  lane->times.bytes += payload.size();
  {
    absl::MutexLock lock(&mu_);
    places_[index] = {schema::Space::kChunks,
                      schema::BlockNumber(lane->builder->builder(), sequence)};
  }
  if (lane->builder->bytes() >= lane->roll_bytes ||
      lane->builder->table_bytes() >= settings_.limits.table_bytes ||
      sequence >= settings_.limits.blocks) {
    return FinishLane(lane);
  }
  return absl::OkStatus();
}

std::string_view BlockSink::ValueOf(std::string_view payload,
                                    std::span<const schema::TableSlice> slices,
                                    Lane* lane) {
  const CodingChoice::Way& way = settings_.coding;
  // To know what coding would cost and bring, one chunk is enough.
  const bool only_try = !way.code && way.measure && !lane->tried;
  if (!way.code && !only_try) return payload;
  lane->tried = true;
  const ThreadTimes before = way.measure ? ThreadTimes::Now() : ThreadTimes();
  const base::Digest digest =
      slices.size() == 1 && slices[0].length == payload.size()
          ? slices[0].digest
          : base::DigestOf(payload);
  const std::string_view coded =
      lane->coder.Encode(std::as_bytes(std::span(payload)), digest);
  const std::string_view value = coded.empty() ? payload : coded;
  lane->times.coded_bytes += payload.size();
  lane->times.coded_to += value.size();
  if (way.measure) {
    lane->times.coding += ThreadTimes::Now().computed - before.computed;
  }
  if (only_try || coded.empty()) return payload;
  coded_bytes_.fetch_add(payload.size(), std::memory_order_relaxed);
  coded_to_.fetch_add(value.size(), std::memory_order_relaxed);
  return value;
}

absl::Status BlockSink::Timed(Lane* lane,
                              absl::FunctionRef<absl::Status()> write) {
  if (!settings_.coding.measure) return write();
  const ThreadTimes before = ThreadTimes::Now();
  absl::Status status = write();
  const ThreadTimes after = ThreadTimes::Now();
  lane->times.computed += after.computed - before.computed;
  lane->times.waited += after.SleptSince(before);
  return status;
}

LaneTimes BlockSink::times() const {
  const absl::MutexLock lock(&mu_);
  LaneTimes all;
  for (const auto& lane : lanes_) all.Add(lane->times);
  return all;
}

absl::Status BlockSink::FinishLane(Lane* lane) {
  BuiltSegment built;
  CKPTREE_RETURN_IF_ERROR(Timed(lane, [&]() -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(built, lane->builder->Finish());
    return absl::OkStatus();
  }));
  lane->builder.reset();
  if (settings_.on_built) settings_.on_built(built);
  absl::MutexLock lock(&mu_);
  segments_.push_back(std::move(built));
  return absl::OkStatus();
}

void BlockSink::Seal() {
  absl::MutexLock lock(&mu_);
  std::sort(
      pending_.begin(), pending_.end(),
      [](const Pending& a, const Pending& b) { return a.order < b.order; });
  for (Pending& block : pending_) {
    const std::uint32_t n =
        schema::BlockNumber(0, static_cast<std::uint32_t>(small_.size()) + 1);
    places_[block.index] = {schema::Space::kSmall, n};
    small_.emplace_back(n, std::move(block.payload));
  }
  pending_.clear();
}

absl::Status BlockSink::Finish() {
  std::vector<Lane*> lanes;
  {
    absl::MutexLock lock(&mu_);
    for (auto& lane : lanes_) {
      if (lane->builder != nullptr) lanes.push_back(lane.get());
    }
  }
  // Each ends with a sync of its file: at once, not one after the other.
  std::vector<absl::Status> results(lanes.size());
  TaskGroup tasks;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    tasks.run(
        [this, &lanes, &results, i] { results[i] = FinishLane(lanes[i]); });
  }
  tasks.wait();
  for (const absl::Status& result : results) {
    CKPTREE_RETURN_IF_ERROR(result);
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
