// SPDX-License-Identifier: Apache-2.0

#include "core/coding/coded_block.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

constexpr std::uint8_t kPlanesOfWords =
    1;  // Of words; there is no other coding.
constexpr std::uint8_t kCellLog2 = 16;
static_assert(kCellBytes == 1U << kCellLog2);

absl::Status BadBlock(std::string_view what) {
  return absl::DataLossError(absl::StrFormat("a coded block: %s", what));
}

}  // namespace

std::string EncodeCodedHead(const CodedHead& head) {
  std::string bytes;
  bytes.reserve(CodedHeadBytes(head.raw_length));
  base::AppendBig(kPlanesOfWords, &bytes);
  base::AppendBig(static_cast<std::uint8_t>(head.width), &bytes);
  base::AppendBig(static_cast<std::uint8_t>(head.map), &bytes);
  base::AppendBig(kCellLog2, &bytes);
  base::AppendBig(head.raw_length, &bytes);
  bytes.append(head.digest.view());
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
  const std::size_t bytes = CodedHeadBytes(raw_length);
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
  CodedHead head;
  head.raw_length = in.Read<std::uint32_t>();
  in.ReadBytes(head.digest.bytes);
  if (coding != kPlanesOfWords) {
    return BadBlock(absl::StrFormat("coding %d is not known", coding));
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
  head.cells.resize(CellCount(raw_length));
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
  if (stored.size() < CodedHeadBytes(1)) return false;
  const auto raw_length = base::ReadBig<std::uint32_t>(stored, 4);
  if (raw_length > std::uint32_t{schema::kMaxChunkBytes}) return false;
  const absl::StatusOr<CodedHead> head =
      DecodeCodedHead(stored, stored.size(), raw_length);
  if (!head.ok()) return false;
  const std::string_view cells = stored.substr(CodedHeadBytes(raw_length));
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
