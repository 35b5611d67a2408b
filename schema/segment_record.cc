// SPDX-License-Identifier: Apache-2.0

#include "schema/segment_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

absl::Status RowFault(std::string_view what) {
  return Fault(RecordKind::kSegmentRow, what);
}

bool IsBlock(std::uint32_t n) {
  return SequenceOf(n) != kHeaderSequence && SequenceOf(n) <= kMaxSequence;
}

}  // namespace

std::string EncodeSegmentRow(const SegmentRow& row) {
  pb::SegmentRow out;
  out.set_first_n(row.first_n);
  out.set_last_n(row.last_n);
  out.set_block_count(row.block_count);
  out.set_bytes(row.bytes);
  std::uint32_t before = 0;
  for (const DeadRun& run : row.dead) {
    out.add_dead_first(run.first - before);
    out.add_dead_count(run.count);
    before = run.first;
  }
  out.set_dead_bytes(row.dead_bytes);
  out.set_died_at(row.died_at);
  out.set_damaged(row.damaged);
  return EnvelopeOf(RecordKind::kSegmentRow, out);
}

absl::StatusOr<SegmentRow> DecodeSegmentRow(std::string_view bytes) {
  pb::SegmentRow in;
  if (absl::Status status = ParseEnvelope(RecordKind::kSegmentRow, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (!IsBlock(in.first_n()) || !IsBlock(in.last_n()) ||
      BuilderOf(in.first_n()) != BuilderOf(in.last_n()) ||
      in.first_n() > in.last_n() || in.block_count() == 0 ||
      in.block_count() > in.last_n() - in.first_n() + 1) {
    return Fault(
        RecordKind::kSegmentRow,
        absl::StrFormat("%d blocks from %d/%d to %d/%d", in.block_count(),
                        BuilderOf(in.first_n()), SequenceOf(in.first_n()),
                        BuilderOf(in.last_n()), SequenceOf(in.last_n())));
  }
  SegmentRow row{in.first_n(), in.last_n(), in.block_count(), in.bytes()};
  row.dead_bytes = in.dead_bytes();
  row.died_at = in.died_at();
  row.damaged = in.damaged();
  if (in.dead_first_size() != in.dead_count_size()) {
    return RowFault("columns of unequal length");
  }
  row.dead.reserve(static_cast<std::size_t>(in.dead_first_size()));
  // 64 bits: sums of what stands there cannot wrap.
  std::uint64_t first = 0, end = 0, count = 0;
  for (int i = 0; i < in.dead_first_size(); ++i) {
    first += in.dead_first(i);
    if (in.dead_count(i) == 0 || first < SequenceOf(row.first_n) ||
        (i > 0 && first <= end) ||
        first + in.dead_count(i) - 1 > SequenceOf(row.last_n)) {
      return RowFault("dead blocks that it does not have");
    }
    end = first + in.dead_count(i);
    count += in.dead_count(i);
    row.dead.push_back({static_cast<std::uint32_t>(first), in.dead_count(i)});
  }
  if (count >= row.block_count || row.dead_bytes > row.bytes ||
      row.dead_bytes < count || (count == 0) != (row.dead_bytes == 0)) {
    return RowFault("more dead than there is");
  }
  return row;
}

std::uint64_t SegmentRow::dead_count() const {
  std::uint64_t count = 0;
  for (const DeadRun& run : dead) count += run.count;
  return count;
}

bool SegmentRow::IsDead(std::uint32_t sequence) const {
  const auto after = std::upper_bound(
      dead.begin(), dead.end(), sequence,
      [](std::uint32_t s, const DeadRun& run) { return s < run.first; });
  if (after == dead.begin()) return false;
  const DeadRun& run = *std::prev(after);
  return sequence - run.first < run.count;
}

absl::Status MarkDead(std::uint32_t first, std::uint32_t count,
                      std::uint64_t bytes, SegmentRow* row) {
  const std::uint32_t end = first + count;
  const auto next = std::lower_bound(
      row->dead.begin(), row->dead.end(), first,
      [](const DeadRun& run, std::uint32_t s) { return run.first < s; });
  const bool overlaps =
      (next != row->dead.end() && next->first < end) ||
      (next != row->dead.begin() &&
       std::prev(next)->first + std::prev(next)->count > first);
  if (count == 0 || first < SequenceOf(row->first_n) ||
      end - 1 > SequenceOf(row->last_n) || overlaps ||
      bytes > row->bytes - row->dead_bytes) {
    return absl::DataLossError(absl::StrFormat(
        "blocks %d to %d cannot die, or died before", first, end - 1));
  }
  auto at = row->dead.insert(next, {first, count});
  if (const auto after = std::next(at);
      after != row->dead.end() && after->first == end) {
    at->count += after->count;
    row->dead.erase(after);
  }
  if (at != row->dead.begin()) {
    if (const auto before = std::prev(at);
        before->first + before->count == first) {
      before->count += at->count;
      row->dead.erase(at);
    }
  }
  row->dead_bytes += bytes;
  return absl::OkStatus();
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  pb::SegmentHeader out;
  out.set_uuid(header.uuid);
  out.set_incarnation(header.incarnation);
  out.set_version(header.version);
  out.set_part(header.part);
  out.set_space(static_cast<std::uint32_t>(header.space));
  out.set_builder(header.builder);
  out.set_attempt(header.attempt);
  return EnvelopeOf(RecordKind::kSegmentHeader, out);
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kSegmentHeader;
  pb::SegmentHeader in;
  if (absl::Status status = ParseEnvelope(kKind, bytes, &in); !status.ok()) {
    return status;
  }
  if (in.uuid().size() != kUuidBytes) {
    return Fault(kKind, "the uuid is not 16 bytes");
  }
  if (in.version() == 0) return Fault(kKind, "it is of version 0");
  if (in.part() >= static_cast<std::uint32_t>(kMaxParts)) {
    return Fault(kKind, absl::StrFormat("part %d", in.part()));
  }
  if (in.space() != static_cast<std::uint32_t>(Space::kLeaves) &&
      in.space() != static_cast<std::uint32_t>(Space::kChunks)) {
    return Fault(kKind, absl::StrFormat("space %d", in.space()));
  }
  if (in.builder() > 0xff) {
    return Fault(kKind, absl::StrFormat("builder %d", in.builder()));
  }
  SegmentHeader header;
  header.uuid = in.uuid();
  header.incarnation = in.incarnation();
  header.version = in.version();
  header.part = static_cast<std::uint16_t>(in.part());
  header.space = static_cast<Space>(in.space());
  header.builder = static_cast<std::uint8_t>(in.builder());
  header.attempt = in.attempt();
  return header;
}

std::string EncodeSmallHeader(const SmallHeader& header) {
  pb::SmallHeader out;
  out.set_block_count(header.block_count);
  out.set_digest(header.digest.view().data(), kDigestBytes);
  return EnvelopeOf(RecordKind::kSmallHeader, out);
}

absl::StatusOr<SmallHeader> DecodeSmallHeader(std::string_view bytes) {
  pb::SmallHeader in;
  if (absl::Status status = ParseEnvelope(RecordKind::kSmallHeader, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.digest().size() != kDigestBytes) {
    return Fault(RecordKind::kSmallHeader, "the digest is not 16 bytes");
  }
  return SmallHeader{in.block_count(), base::Digest::FromBytes(in.digest())};
}

}  // namespace ckptree::schema
