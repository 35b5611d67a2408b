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
#include "core/coding/rounded_copy.h"
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

// Which part of a block a reference is of: what a digest of the head is of.
enum class PartOfBlock { kAll, kMaster, kCopy, kOther };

PartOfBlock PartOf(const schema::ChunkRef& ref) {
  if (ref.length == ref.block_length) return PartOfBlock::kAll;
  const std::uint64_t master =
      BytesInCells(BlockCoding::kRoundedCopy, ref.block_length);
  if (ref.block_length % 6 != 0) return PartOfBlock::kOther;
  if (ref.offset == 0 && ref.length == master) return PartOfBlock::kMaster;
  if (ref.offset == master && ref.length == ref.block_length - master) {
    return PartOfBlock::kCopy;
  }
  return PartOfBlock::kOther;
}

// Whether the head is of the bytes that `ref` says were saved.
bool VouchesFor(const CodedHead& head, const schema::ChunkRef& ref) {
  const PartOfBlock part = PartOf(ref);
  if (head.coding == BlockCoding::kPlanes) {
    return part == PartOfBlock::kAll && head.digest == ref.digest;
  }
  return (part == PartOfBlock::kMaster && head.digest == ref.digest) ||
         (part == PartOfBlock::kCopy && head.copy == ref.digest);
}

}  // namespace

std::pair<std::size_t, std::size_t> ReadPlan::CellsOf(
    std::span<const Slice> slices, BlockCoding coding) const {
  const std::uint64_t in_cells =
      BytesInCells(coding, slices.front().ref.block_length);
  const std::pair<std::size_t, std::size_t> all(0, CellCount(in_cells));
  std::uint64_t begin = in_cells;
  std::uint64_t end = 0;
  for (const Slice& slice : slices) {
    const PartOfBlock part = PartOf(slice.ref);
    const bool vouched_for =
        coding == BlockCoding::kPlanes
            ? part == PartOfBlock::kAll
            : part == PartOfBlock::kMaster || part == PartOfBlock::kCopy;
    // Where the head cannot vouch for it its digest must, which is of all its
    // bytes.
    if (slice.scatter < 0 || !vouched_for) return all;
    const Scatter& s = scatters_[static_cast<std::size_t>(slice.scatter)];
    std::int64_t first = 0;
    std::int64_t last = 0;
    for (std::size_t d = 0; d < s.start.size(); ++d) {
      const std::int64_t at = s.start[d] - s.cell_start[d];
      first = first * s.cell_shape[d] + at;
      last = last * s.cell_shape[d] + at + s.shape[d] - 1;
    }
    // A word of the copy takes one of twice as many bytes.
    const std::uint64_t size = static_cast<std::uint64_t>(s.element_bytes) *
                               (part == PartOfBlock::kCopy ? 2 : 1);
    begin = std::min(begin, static_cast<std::uint64_t>(first) * size);
    end = std::max(end, (static_cast<std::uint64_t>(last) + 1) * size);
  }
  if (begin >= end || end > in_cells) return all;
  return {begin / kCellBytes, CellCount(end)};
}

bool ReadPlan::ReadCoded(std::span<const Slice> slices, Scratch* scratch) {
  const schema::ChunkRef& first = slices.front().ref;
  const std::uint64_t block = first.block_length;
  const std::string key = ChunkKey(first);
  const std::optional<std::uint64_t> stored =
      database_.ValueBytes(first.place, key);
  if (!stored.has_value() || *stored >= block) return false;
  const auto read = [&](std::uint64_t offset, std::uint64_t bytes) {
    const std::span<std::byte> memory = Room(&scratch->coded, bytes);
    CountRead(bytes);
    return database_.ReadUnchecked(first.place, key, *stored, offset, memory)
               ? AsText(memory)
               : std::string_view();
  };
  // What the references are of says how it is coded, if it is read in part.
  const BlockCoding coding = PartOf(first) == PartOfBlock::kAll
                                 ? BlockCoding::kPlanes
                                 : BlockCoding::kRoundedCopy;
  // From elsewhere, a head of its own takes longer than the other cells.
  const std::pair<std::size_t, std::size_t> all(
      0, CellCount(BytesInCells(coding, block)));
  const auto [from, to] = far_ ? all : CellsOf(slices, coding);
  const std::size_t head_bytes = CodedHeadBytes(coding, block);
  if (from != 0 || to != CellCount(BytesInCells(coding, block))) {
    const auto head = DecodeCodedHead(
        read(0, std::min<std::uint64_t>(head_bytes, *stored)), *stored, block);
    // The checksums of the cells vouch for them, the head for these, and its
    // digests for the head: that it is of the bytes that were saved.
    const bool vouched_for =
        head.ok() && head->coding == coding &&
        std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
          return VouchesFor(*head, slice.ref);
        });
    if (vouched_for) {
      const std::uint32_t begin = head->begin(from);
      return DeliverCoded(
          slices, *head, from, to,
          read(head_bytes + begin, head->cells[to - 1].end - begin), scratch);
    }
  }
  return DeliverWholeCoded(slices, read(0, *stored), scratch);
}

bool ReadPlan::DeliverWholeCoded(std::span<const Slice> slices,
                                 std::string_view value,
                                 Scratch* scratch) const {
  const auto head =
      DecodeCodedHead(value, value.size(), slices.front().ref.block_length);
  return head.ok() && DeliverCoded(slices, *head, 0, head->cells.size(),
                                   value.substr(head->head_bytes()), scratch);
}

bool ReadPlan::DeliverCoded(std::span<const Slice> slices,
                            const CodedHead& head, std::size_t from,
                            std::size_t to, std::string_view cells,
                            Scratch* scratch) const {
  const bool whole = from == 0 && to == head.cells.size();
  const std::size_t in_cells = head.in_cells();
  // Straight to where all of it belongs, if it belongs to one place.
  const auto owner =
      std::find_if(slices.begin(), slices.end(), [&](const Slice& slice) {
        return slice.scatter < 0 && slice.ref.offset == 0 &&
               slice.ref.length == in_cells;
      });
  const std::span<std::byte> memory =
      owner == slices.end() ? Room(&scratch->bytes, in_cells)
                            : std::span(owner->destination, in_cells);
  const std::size_t begin = from * kCellBytes;
  const std::span<std::byte> decoded = memory.subspan(
      begin, std::min<std::size_t>(to * kCellBytes, in_cells) - begin);
  if (!scratch->decoder.DecodeCells(head, from, to, cells, decoded).ok()) {
    return false;
  }
  std::span<std::byte> copy;
  if (head.coding == BlockCoding::kRoundedCopy) {
    copy = Room(&scratch->copy, head.raw_length - in_cells);
    RoundWords(decoded, copy.data() + begin / 2);
  }
  const schema::ChunkRef* checked = nullptr;  // One for several boxes.
  for (auto slice = slices.begin(); slice != slices.end(); ++slice) {
    const std::uint64_t at = slice->ref.offset;
    const std::span<std::byte> part = at < in_cells ? memory : copy;
    const std::uint64_t offset = at < in_cells ? at : at - in_cells;
    // Of both parts, or of none: whoever has all in one piece sees to that.
    if (offset + slice->ref.length > part.size()) return false;
    const std::byte* const bytes = part.data() + offset;
    if (whole && (checked == nullptr || *checked != slice->ref)) {
      if (!IsSaved(slice->ref, bytes)) return false;
      checked = &slice->ref;
    }
    if (slice != owner) Deliver(*slice, bytes);
  }
  return true;
}

}  // namespace ckptree::internal
