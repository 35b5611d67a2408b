// SPDX-License-Identifier: Apache-2.0

// ReadPlan: blocks that are coded. Hot path: per chunk.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/coding/coded_block.h"
#include "core/version/block_payload.h"
#include "core/version/read_plan.h"

namespace ckptree::internal {
namespace {

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The first `bytes` of the memory, which becomes larger where it must.
std::span<std::byte> Room(std::vector<std::byte>* memory, std::size_t bytes) {
  if (memory->size() < bytes) memory->resize(bytes);
  return std::span(*memory).first(bytes);
}

}  // namespace

std::pair<std::size_t, std::size_t> ReadPlan::CellsOf(
    std::span<const Slice> slices) const {
  const std::uint64_t block = slices.front().ref.block_length;
  const std::pair<std::size_t, std::size_t> all(0, CellCount(block));
  std::uint64_t begin = block;
  std::uint64_t end = 0;
  for (const Slice& slice : slices) {
    // What is not of one leaf alone needs its digest, and so all its bytes.
    if (slice.scatter < 0 || slice.ref.length != block) return all;
    const Scatter& s = scatters_[static_cast<std::size_t>(slice.scatter)];
    std::int64_t first = 0;
    std::int64_t last = 0;
    for (std::size_t d = 0; d < s.start.size(); ++d) {
      const std::int64_t at = s.start[d] - s.cell_start[d];
      first = first * s.cell_shape[d] + at;
      last = last * s.cell_shape[d] + at + s.shape[d] - 1;
    }
    const auto size = static_cast<std::uint64_t>(s.element_bytes);
    begin = std::min(begin, static_cast<std::uint64_t>(first) * size);
    end = std::max(end, (static_cast<std::uint64_t>(last) + 1) * size);
  }
  if (begin >= end || end > block) return all;
  return {begin / kCellBytes, CellCount(end)};
}

bool ReadPlan::ReadCoded(std::span<const Slice> slices, Scratch* scratch) {
  const schema::ChunkRef& first = slices.front().ref;
  const std::uint64_t block = first.block_length;
  const std::string key = ChunkKey(first);
  const std::optional<std::uint64_t> stored =
      database_.ValueBytes(first.place, key);
  const std::size_t head_bytes = CodedHeadBytes(block);
  if (!stored.has_value() || *stored >= block || *stored < head_bytes) {
    return false;
  }
  const auto [from, to] = CellsOf(slices);
  const bool whole = from == 0 && to == CellCount(block);
  const auto read = [&](std::uint64_t offset, std::uint64_t bytes) {
    const std::span<std::byte> memory = Room(&scratch->coded, bytes);
    CountRead(bytes);
    return database_.ReadUnchecked(first.place, key, *stored, offset, memory)
               ? AsText(memory)
               : std::string_view();
  };
  std::string_view coded = read(0, whole ? *stored : head_bytes);
  const auto head = DecodeCodedHead(coded, *stored, block);
  if (!head.ok()) return false;
  if (whole) {
    coded.remove_prefix(head_bytes);
  } else {
    // The checksums of the cells vouch for them, the head for these, and its
    // digest for the head: that it is of the bytes that were saved.
    if (head->digest != first.digest) return false;
    const std::uint32_t begin = head->begin(from);
    coded = read(head_bytes + begin, head->cells[to - 1].end - begin);
  }
  const Slice& only = slices.front();
  if (slices.size() == 1 && only.scatter < 0 && only.ref.length == block) {
    const std::span<std::byte> raw(only.destination, block);
    return scratch->decoder.DecodeCells(*head, from, to, coded, raw).ok() &&
           IsSaved(only.ref, raw.data());
  }
  // Where they stand in the payload.
  const std::span<std::byte> payload = Room(&scratch->bytes, block);
  const std::size_t end = std::min<std::size_t>(to * kCellBytes, block);
  if (!scratch->decoder
           .DecodeCells(
               *head, from, to, coded,
               payload.subspan(from * kCellBytes, end - from * kCellBytes))
           .ok()) {
    return false;
  }
  const schema::ChunkRef* checked = nullptr;  // One for several boxes.
  for (const Slice& slice : slices) {
    if (!SliceOf(slice.ref, AsText(payload)).ok()) return false;
    const std::byte* const bytes = payload.data() + slice.ref.offset;
    if (whole && (checked == nullptr || *checked != slice.ref)) {
      if (!IsSaved(slice.ref, bytes)) return false;
      checked = &slice.ref;
    }
    Deliver(slice, bytes);
  }
  return true;
}

}  // namespace ckptree::internal
