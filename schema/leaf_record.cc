// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "schema/leaf_record.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "ckptree/dtype.h"
#include "ckptree/statistics.h"
#include "schema/checkpoint.pb.h"
#include "schema/column.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

// A message that is used again keeps its arrays, which is most of the cost of a
// small record. A larger one is not kept.
constexpr std::size_t kScratchBytes = 64 << 10;

absl::Status LeafFault(std::string_view what) {
  return Fault(RecordKind::kLeafRecord, what);
}

void AppendDims(const std::vector<std::int64_t>& dims, pb::LeafRecord* out) {
  for (const std::int64_t dim : dims) {
    out->add_dims(static_cast<std::uint64_t>(dim));
  }
}

void EncodeChunks(const std::vector<ChunkRef>& chunks, pb::LeafRecord* out) {
  std::string* digests = out->mutable_digests();
  digests->reserve(kDigestBytes * chunks.size());
  std::int64_t last = 0;
  bool alone = true;  // Each in a block of its own.
  for (const ChunkRef& chunk : chunks) {
    digests->append(chunk.digest.view());
    out->add_n(std::int64_t{chunk.n} - last);
    last = chunk.n;
    alone &= chunk.block_length == chunk.length;
  }
  const auto u32 = [](auto value) { return static_cast<std::uint32_t>(value); };
  FillColumn(
      chunks, [](const ChunkRef& c) { return c.version; }, std::uint64_t{0},
      out->mutable_version());
  FillColumn(
      chunks, [](const ChunkRef& c) { return c.length; }, 0u,
      out->mutable_length());
  if (!alone) {
    FillColumn(
        chunks, [](const ChunkRef& c) { return c.block_length; }, 0u,
        out->mutable_block_length());
  }
  FillColumn(
      chunks, [](const ChunkRef& c) { return c.offset; }, 0u,
      out->mutable_offset());
  FillColumn(
      chunks, [&](const ChunkRef& c) { return u32(c.part); }, 0u,
      out->mutable_part());
  FillColumn(
      chunks, [&](const ChunkRef& c) { return u32(c.place); },
      u32(Space::kChunks), out->mutable_place());
}

absl::Status CheckChunk(const ChunkRef& chunk, std::uint32_t part,
                        std::uint32_t place) {
  if (chunk.version == 0) return LeafFault("a chunk is of version 0");
  if (part >= static_cast<std::uint32_t>(kMaxParts)) {
    return LeafFault(absl::StrFormat("a chunk is of part %d", part));
  }
  if (place != static_cast<std::uint32_t>(Space::kChunks) &&
      place != static_cast<std::uint32_t>(Space::kSmall)) {
    return LeafFault(absl::StrFormat("a chunk is in space %d", place));
  }
  const std::uint32_t sequence = SequenceOf(chunk.n);
  if (sequence == kHeaderSequence || sequence > kMaxSequence) {
    return LeafFault("a chunk has no number of a block");
  }
  if (chunk.length == 0 || chunk.block_length > kMaxChunkBytes ||
      std::int64_t{chunk.offset} + chunk.length > chunk.block_length) {
    return LeafFault(
        absl::StrFormat("a chunk of %d bytes at offset %d of a block of %d",
                        chunk.length, chunk.offset, chunk.block_length));
  }
  return absl::OkStatus();
}

absl::Status DecodeChunks(const pb::LeafRecord& in, LeafRecord* record) {
  const std::string& digests = in.digests();
  const int count = in.n_size();
  if (digests.size() % kDigestBytes != 0 ||
      digests.size() / kDigestBytes != static_cast<std::size_t>(count)) {
    return LeafFault(absl::StrFormat("%d bytes of digests for %d chunks",
                                     digests.size(), count));
  }
  if (!ColumnFits(in.version(), count) || !ColumnFits(in.length(), count) ||
      !ColumnFits(in.offset(), count) || !ColumnFits(in.part(), count) ||
      !ColumnFits(in.place(), count) || !ColumnFits(in.block_length(), count)) {
    return LeafFault("a column does not have one value per chunk");
  }
  record->chunks.resize(static_cast<std::size_t>(count));
  std::uint64_t n = 0;
  for (int i = 0; i < count; ++i) {
    ChunkRef& chunk = record->chunks[static_cast<std::size_t>(i)];
    n += static_cast<std::uint64_t>(in.n(i));  // Wraps; checked below.
    if (n > std::numeric_limits<std::uint32_t>::max()) {
      return LeafFault("a chunk has no number of a block");
    }
    chunk.n = static_cast<std::uint32_t>(n);
    chunk.version = ColumnAt(in.version(), i, std::uint64_t{0});
    chunk.length = ColumnAt(in.length(), i, 0u);
    chunk.block_length = ColumnAt(in.block_length(), i, chunk.length);
    chunk.offset = ColumnAt(in.offset(), i, 0u);
    const auto part = ColumnAt(in.part(), i, 0u);
    const auto place =
        ColumnAt(in.place(), i, static_cast<std::uint32_t>(Space::kChunks));
    chunk.part = static_cast<std::uint16_t>(part);
    chunk.place = static_cast<Space>(place);
    chunk.digest = base::Digest::FromBytes(std::string_view(digests).substr(
        kDigestBytes * static_cast<std::size_t>(i), kDigestBytes));
    if (absl::Status status = CheckChunk(chunk, part, place); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBox(const Box& box) {
  // A dimension that was read from unsigned and does not fit is negative.
  for (std::size_t i = 0; i < box.shape.size(); ++i) {
    if (box.start[i] < 0 || box.shape[i] < 0 || box.chunk_shape[i] < 1 ||
        box.start[i] > kMaxArrayBytes || box.shape[i] > kMaxArrayBytes ||
        box.chunk_shape[i] > kMaxArrayBytes) {
      return LeafFault("a box has a dimension out of range");
    }
  }
  if (!ElementCount(box.shape).has_value()) {
    return LeafFault("a box has too many elements");
  }
  return absl::OkStatus();
}

absl::Status CheckBoxes(const LeafRecord& record) {
  if (record.boxes.empty()) return absl::OkStatus();
  std::int64_t chunks = 0;
  for (const Box& box : record.boxes) {
    if (absl::Status status = CheckBox(box); !status.ok()) return status;
    const std::int64_t more = ChunkCount(box);
    if (more > kMaxArrayBytes - chunks) {
      return LeafFault("a box has too many chunks");
    }
    chunks += more;
  }
  if (chunks != static_cast<std::int64_t>(record.chunks.size())) {
    return LeafFault(absl::StrFormat("the boxes have %d chunks, there are %d",
                                     chunks, record.chunks.size()));
  }
  return absl::OkStatus();
}

absl::Status DecodeBoxes(const pb::LeafRecord& in, LeafRecord* record) {
  const std::uint64_t rank = in.rank();
  const std::uint64_t count = in.box_count();
  if (rank > static_cast<std::uint64_t>(kMaxDims)) {
    return LeafFault(absl::StrFormat("a box has %d dimensions", rank));
  }
  // A box without dimensions has no bytes: more than one would be for free.
  if (count * 3 * rank != static_cast<std::uint64_t>(in.dims_size()) ||
      (rank == 0 && count > 1)) {
    return LeafFault(absl::StrFormat("%d boxes of rank %d in %d numbers", count,
                                     rank, in.dims_size()));
  }
  record->boxes.resize(static_cast<std::size_t>(count));
  auto next = in.dims().begin();
  for (Box& box : record->boxes) {
    for (auto* dims : {&box.start, &box.shape, &box.chunk_shape}) {
      dims->assign(next, next + static_cast<int>(rank));
      next += static_cast<int>(rank);
    }
  }
  return CheckBoxes(*record);
}

// What holds of statistics however they came about.
bool Plausible(const Statistics& s) {
  if (s.nan > s.count || s.inf > s.count - s.nan || s.zero > s.finite()) {
    return false;
  }
  if (s.finite() == 0) {
    return s.min == std::numeric_limits<double>::infinity() && s.max == -s.min;
  }
  return std::isfinite(s.min) && std::isfinite(s.max) && s.min <= s.max &&
         !(s.sum_of_squares < 0);
}

absl::Status CheckStatistics(const LeafRecord& record) {
  const std::size_t count = record.statistics.size();
  const std::size_t expected = record.is_inline ? 1 : record.chunks.size();
  if (count != 0 && count != expected) {
    return LeafFault(absl::StrFormat("statistics of %d chunks, there are %d",
                                     count, expected));
  }
  for (const Statistics& statistics : record.statistics) {
    if (!Plausible(statistics)) return LeafFault("statistics that cannot be");
  }
  return absl::OkStatus();
}

absl::Status DecodeStatistics(const pb::LeafRecord& in, LeafRecord* record) {
  const int size = in.counts_size();
  if (size != in.moments_size() || size % 4 != 0) {
    return LeafFault("the statistics have columns of unequal length");
  }
  record->statistics.resize(static_cast<std::size_t>(size / 4));
  for (int i = 0; i < size; i += 4) {
    Statistics& s = record->statistics[static_cast<std::size_t>(i / 4)];
    s.count = in.counts(i);
    s.nan = in.counts(i + 1);
    s.inf = in.counts(i + 2);
    s.zero = in.counts(i + 3);
    s.min = in.moments(i);
    s.max = in.moments(i + 1);
    s.sum = in.moments(i + 2);
    s.sum_of_squares = in.moments(i + 3);
  }
  return CheckStatistics(*record);
}

absl::Status CheckSince(const LeafRecord& record) {
  if (record.since_version != 0) return absl::OkStatus();
  return LeafFault("it is since version 0");
}

absl::Status CheckLength(const LeafRecord& record) {
  const std::uint64_t length = record.byte_length;
  if (length > static_cast<std::uint64_t>(kMaxArrayBytes)) {
    return LeafFault(absl::StrFormat("a value of %d bytes", length));
  }
  if (record.is_inline) {
    if (!record.boxes.empty() || !record.chunks.empty()) {
      return LeafFault("an inline value has boxes or chunks");
    }
    if (record.inline_value.size() != length ||
        length > static_cast<std::uint64_t>(kMaxInlineBytes)) {
      return LeafFault(absl::StrFormat("%d inline bytes of a value of %d",
                                       record.inline_value.size(), length));
    }
    return absl::OkStatus();
  }
  std::uint64_t total = 0;  // At most 2^31 chunks of 2^24 bytes.
  for (const ChunkRef& chunk : record.chunks) total += chunk.length;
  // Each chunk of a packed array ends with up to seven bits of nothing.
  const std::uint64_t slack = record.boxes.empty() || record.chunks.empty()
                                  ? 0
                                  : record.chunks.size() - 1;
  if (total < length || total - length > slack) {
    return LeafFault(absl::StrFormat("the chunks have %d bytes, the value %d",
                                     total, length));
  }
  return absl::OkStatus();
}

// Sets all of `record`, whatever was in it.
absl::Status Decode(std::string_view body, pb::LeafRecord* in,
                    LeafRecord* record) {
  if (!in->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return LeafFault("the body does not parse");
  }
  record->since_version = in->since_version();
  record->since_step = in->since_step();
  record->byte_length = in->byte_length();
  record->is_inline = in->has_inline_value();
  if (record->is_inline) {
    record->inline_value = in->inline_value();
  } else {
    record->inline_value.clear();
  }
  if (absl::Status status = CheckSince(*record); !status.ok()) return status;
  for (const auto decode : {DecodeChunks, DecodeBoxes, DecodeStatistics}) {
    if (absl::Status status = decode(*in, record); !status.ok()) {
      return status;
    }
  }
  return CheckLength(*record);
}

// What the digest of a value begins with; the digests of its chunks follow.
void BeginChunked(std::uint64_t byte_length, std::span<const Box> boxes,
                  std::string* text) {
  text->push_back('c');
  base::AppendBig(byte_length, text);
  base::AppendBig(static_cast<std::uint32_t>(boxes.size()), text);
  for (const Box& box : boxes) {
    base::AppendBig(static_cast<std::uint32_t>(box.shape.size()), text);
    for (const auto* dims : {&box.start, &box.shape, &box.chunk_shape}) {
      for (const std::int64_t dim : *dims) {
        base::AppendBig(static_cast<std::uint64_t>(dim), text);
      }
    }
  }
}

void Encode(const LeafRecord& record, pb::LeafRecord* message) {
  message->set_since_version(record.since_version);
  message->set_since_step(record.since_step);
  message->set_byte_length(record.byte_length);
  if (record.is_inline) message->set_inline_value(record.inline_value);
  if (!record.boxes.empty()) {
    message->set_rank(
        static_cast<std::uint32_t>(record.boxes.front().shape.size()));
    message->set_box_count(static_cast<std::uint32_t>(record.boxes.size()));
    for (const Box& box : record.boxes) {
      AppendDims(box.start, message);
      AppendDims(box.shape, message);
      AppendDims(box.chunk_shape, message);
    }
  }
  EncodeChunks(record.chunks, message);
  for (const Statistics& s : record.statistics) {
    for (const std::uint64_t count : {s.count, s.nan, s.inf, s.zero}) {
      message->add_counts(count);
    }
    for (const double moment : {s.min, s.max, s.sum, s.sum_of_squares}) {
      message->add_moments(moment);
    }
  }
}

}  // namespace

std::int64_t ChunkCount(const Box& box) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < box.shape.size(); ++i) {
    const std::int64_t step = std::max<std::int64_t>(box.chunk_shape[i], 1);
    const std::int64_t along =
        box.shape[i] / step + (box.shape[i] % step != 0 ? 1 : 0);
    if (along <= 0) return 0;
    // Stays at the largest number where the product has no room.
    count = along > std::numeric_limits<std::int64_t>::max() / count
                ? std::numeric_limits<std::int64_t>::max()
                : count * along;
  }
  return count;
}

base::Digest ValueDigest(const LeafRecord& record) {
  if (record.is_inline) return InlineValueDigest(record.inline_value);
  thread_local std::string small;
  std::string large;
  const std::size_t digests = kDigestBytes * record.chunks.size();
  std::string& text = digests > kScratchBytes ? large : small;
  text.clear();
  text.reserve(64 + digests);
  BeginChunked(record.byte_length, record.boxes, &text);
  for (const ChunkRef& chunk : record.chunks) text.append(chunk.digest.view());
  return base::DigestOf(text);
}

base::Digest InlineValueDigest(std::string_view value) {
  thread_local std::string text;
  text.assign(1, 'i');
  base::AppendBig(static_cast<std::uint64_t>(value.size()), &text);
  text.append(value);
  return base::DigestOf(text);
}

base::Digest ChunkValueDigest(std::uint64_t byte_length, const Box* box,
                              const base::Digest& chunk) {
  thread_local std::string text;
  text.clear();
  BeginChunked(byte_length,
               box == nullptr ? std::span<const Box>() : std::span(box, 1),
               &text);
  text.append(chunk.view());
  return base::DigestOf(text);
}

absl::Status CheckLeafRecord(const LeafRecord& record) {
  for (const ChunkRef& chunk : record.chunks) {
    if (absl::Status status = CheckChunk(
            chunk, chunk.part, static_cast<std::uint32_t>(chunk.place));
        !status.ok()) {
      return status;
    }
  }
  for (const auto check :
       {CheckSince, CheckBoxes, CheckStatistics, CheckLength}) {
    if (absl::Status status = check(record); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void EncodeLeafRecord(const LeafRecord& record, std::string* out) {
  thread_local pb::LeafRecord scratch;
  thread_local std::string body;
  if (record.chunks.size() * kDigestBytes > kScratchBytes) {
    pb::LeafRecord message;
    Encode(record, &message);
    AppendEnvelope(RecordKind::kLeafRecord, message.SerializeAsString(), out);
    return;
  }
  scratch.Clear();
  Encode(record, &scratch);
  scratch.SerializeToString(&body);
  AppendEnvelope(RecordKind::kLeafRecord, body, out);
}

absl::Status DecodeLeafRecordInto(std::string_view bytes, LeafRecord* record) {
  const absl::StatusOr<std::string_view> body =
      OpenEnvelope(RecordKind::kLeafRecord, bytes);
  if (!body.ok()) return body.status();
  if (body->size() > kScratchBytes) {
    pb::LeafRecord message;
    return Decode(*body, &message, record);
  }
  thread_local pb::LeafRecord scratch;
  return Decode(*body, &scratch, record);
}

absl::StatusOr<LeafRecord> DecodeLeafRecord(std::string_view bytes) {
  LeafRecord record;
  if (absl::Status status = DecodeLeafRecordInto(bytes, &record);
      !status.ok()) {
    return status;
  }
  return record;
}

}  // namespace ckptree::schema
