// SPDX-License-Identifier: Apache-2.0

// Hot path: per value of a history.

#include "core/engine/leaf_past.h"

#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/escaping.h"
#include "base/big_endian.h"
#include "core/engine/step_reader.h"

namespace ckptree::internal {
namespace {

void AppendCut(std::span<const std::int64_t> dims, std::string* cut) {
  base::AppendBig(static_cast<std::uint32_t>(dims.size()), cut);
  for (const std::int64_t dim : dims) {
    base::AppendBig(static_cast<std::uint64_t>(dim), cut);
  }
}

// `Box`: with a start and a shape. `chunk_shape`: of the chunks of the i-th.
template <typename Box, typename ChunkShape>
std::uint64_t CutOf(const std::vector<Box>& boxes, std::uint64_t chunks,
                    std::span<const std::uint64_t> rank_boxes,
                    const ChunkShape& chunk_shape) {
  if (boxes.empty()) return chunks > 1 ? kCutByLength : 0;
  thread_local std::string cut;
  cut.clear();
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    AppendCut(boxes[i].start, &cut);
    AppendCut(boxes[i].shape, &cut);
    AppendCut(chunk_shape(i), &cut);
  }
  for (const std::uint64_t count : rank_boxes) base::AppendBig(count, &cut);
  return base::ChecksumOf(cut);
}

}  // namespace

void Describe(const schema::LeafRecord& record, PastValue* value) {
  value->bytes = record.byte_length;
  value->since_step = record.since_step;
  value->digest = schema::ValueDigest(record);
  value->statistics.reset();
  for (const Statistics& statistics : record.statistics) {
    if (!value->statistics.has_value()) value->statistics.emplace();
    value->statistics->Merge(statistics);
  }
  value->cut = CutOf(record.boxes, record.chunks.size(), {},
                     [&record](std::size_t i) -> std::span<const std::int64_t> {
                       return record.boxes[i].chunk_shape;
                     });
}

void Describe(const LeafDetail& detail, PastValue* value) {
  value->bytes = detail.bytes;
  value->since_step = detail.since_step;
  value->digest =
      base::Digest::FromBytes(absl::HexStringToBytes(detail.digest));
  value->statistics = detail.statistics;
  value->cut = CutOf(detail.boxes, detail.chunk_count, detail.rank_boxes,
                     [&detail](std::size_t i) -> std::span<const std::int64_t> {
                       return ChunkShapeOf(detail, i);
                     });
}

}  // namespace ckptree::internal
