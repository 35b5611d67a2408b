// SPDX-License-Identifier: Apache-2.0

#include "core/coding/coded_block.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

constexpr std::uint8_t kCellLog2 = 16;
static_assert(kCellBytes == 1U << kCellLog2);

absl::Status BadBlock(std::string_view what) {
  return absl::DataLossError(absl::StrFormat("a coded block: %s", what));
}

}  // namespace

std::string EncodeCodedHead(const CodedHead& head) {
  std::string bytes;
  bytes.reserve(head.head_bytes());
  base::AppendBig(static_cast<std::uint8_t>(head.coding), &bytes);
  base::AppendBig(static_cast<std::uint8_t>(head.width), &bytes);
  base::AppendBig(static_cast<std::uint8_t>(head.map), &bytes);
  base::AppendBig(kCellLog2, &bytes);
  base::AppendBig(head.raw_length, &bytes);
  bytes.append(head.digest.view());
  if (head.coding == BlockCoding::kRoundedCopy) bytes.append(head.copy.view());
  for (const CodedHead::Cell& cell : head.cells) {
    base::AppendBig(cell.end, &bytes);
    base::AppendBig(cell.checksum, &bytes);
  }
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  return bytes;
}

absl::StatusOr<CodedHead> DecodeCodedHead(std::string_view stored,
                                          std::uint64_t stored_length,
                                          std::uint64_t raw_length) {
  // What it says before it is checked only says where its checksum is.
  const bool has_copy =
      stored.starts_with(static_cast<char>(BlockCoding::kRoundedCopy));
  CodedHead head;
  if (has_copy) head.coding = BlockCoding::kRoundedCopy;
  const std::size_t bytes = CodedHeadBytes(head.coding, raw_length);
  if (raw_length == 0 || stored_length < bytes || stored.size() < bytes) {
    return BadBlock(absl::StrFormat("%d bytes are too few for a block of %d",
                                    stored_length, raw_length));
  }
  const std::size_t checked = bytes - sizeof(std::uint64_t);
  if (base::ReadBig<std::uint64_t>(stored, checked) !=
      base::ChecksumOf(stored.substr(0, checked))) {
    return BadBlock("its head is not what was written");
  }
  base::BigEndianReader in(stored);
  const auto coding = in.Read<std::uint8_t>();
  const auto width = in.Read<std::uint8_t>();
  const auto map = in.Read<std::uint8_t>();
  const auto cell_log2 = in.Read<std::uint8_t>();
  head.raw_length = in.Read<std::uint32_t>();
  in.ReadBytes(head.digest.bytes);
  if (has_copy) in.ReadBytes(head.copy.bytes);
  if (coding != static_cast<std::uint8_t>(head.coding)) {
    return BadBlock(absl::StrFormat("coding %d is not known", coding));
  }
  if (has_copy && raw_length % 6 != 0) {
    return BadBlock(absl::StrFormat(
        "%d bytes are no words of 4 bytes and as many of 2", raw_length));
  }
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return BadBlock(absl::StrFormat("words of %d bytes", width));
  }
  if (map > static_cast<std::uint8_t>(WordMap::kRotated)) {
    return BadBlock(absl::StrFormat("map %d is not known", map));
  }
  if (cell_log2 != kCellLog2) {
    return BadBlock(absl::StrFormat("cells of 2^%d bytes", cell_log2));
  }
  if (head.raw_length != raw_length) {
    return BadBlock(absl::StrFormat("it is of %d bytes, not %d",
                                    head.raw_length, raw_length));
  }
  head.width = width;
  head.map = static_cast<WordMap>(map);
  head.cells.resize(CellCount(head.in_cells()));
  const std::uint32_t least = std::uint32_t{kPlaneHeadBytes} * width;
  std::uint32_t before = 0;
  for (CodedHead::Cell& cell : head.cells) {
    cell.end = in.Read<std::uint32_t>();
    cell.checksum = in.Read<std::uint64_t>();
    if (cell.end < before || cell.end - before < least) {
      return BadBlock("a cell is too short for its planes");
    }
    before = cell.end;
  }
  if (before != stored_length - bytes) {
    return BadBlock(absl::StrFormat("its cells have %d bytes, not %d",
                                    stored_length - bytes, before));
  }
  return head;
}

std::uint32_t CodedPayloadBytes(std::string_view stored) {
  return base::ReadBig<std::uint32_t>(stored, 4);
}

bool IsCodedBlock(std::string_view stored) {
  if (stored.size() < CodedHeadBytes(BlockCoding::kPlanes, 1)) return false;
  const auto raw_length = base::ReadBig<std::uint32_t>(stored, 4);
  if (raw_length > std::uint32_t{schema::kMaxChunkBytes}) return false;
  const absl::StatusOr<CodedHead> head =
      DecodeCodedHead(stored, stored.size(), raw_length);
  if (!head.ok()) return false;
  const std::string_view cells = stored.substr(head->head_bytes());
  for (std::size_t c = 0; c < head->cells.size(); ++c) {
    const std::uint32_t begin = head->begin(c);
    if (base::ChecksumOf(cells.substr(begin, head->cells[c].end - begin)) !=
        head->cells[c].checksum) {
      return false;
    }
  }
  return true;
}

}  // namespace ckptree::internal
