// SPDX-License-Identifier: Apache-2.0

// How a coded block lies in its file: a head that says where its cells are, and
// the cells. FORMAT.md, part 7, has the bytes.
//
//   head    coding u8, width u8, map u8, cell u8, raw length u32, digest 16,
//   for
//           a rounded copy its digest 16; per cell: its end u32 and checksum
//           u64; checksum u64 of all that
//   cells   per plane: kind u8, length u32; the planes; what fills no word

#ifndef CKPTREE_CORE_CODING_CODED_BLOCK_H_
#define CKPTREE_CORE_CODING_CODED_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"

namespace ckptree::internal {

// Raw bytes of every cell but the last.
inline constexpr std::uint32_t kCellBytes = 64 << 10;

// ON DISK: never renumber.
enum class BlockCoding : std::uint8_t {
  kPlanes = 1,
  // The same of the first two thirds; the last third is their rounded copy.
  kRoundedCopy = 2,
};

// ON DISK: never renumber.
enum class WordMap : std::uint8_t {
  kNone = 0,
  kRotated = 1,  // The highest bit of each word stands below the others.
};

// ON DISK: never renumber.
enum class PlaneKind : std::uint8_t {
  kRaw = 0,
  kOneValue = 1,  // One byte, which all of the plane are.
  kZstd = 2,      // A frame of zstd that says how large its content is.
};
inline constexpr std::size_t kPlaneHeadBytes = 1 + 4;

// How many of `raw_length` bytes stand in the cells; the others follow from
// them.
constexpr std::uint64_t BytesInCells(BlockCoding coding,
                                     std::uint64_t raw_length) {
  return coding == BlockCoding::kRoundedCopy ? raw_length / 3 * 2 : raw_length;
}

constexpr std::size_t CellCount(std::uint64_t bytes_in_cells) {
  return static_cast<std::size_t>((bytes_in_cells + kCellBytes - 1) /
                                  kCellBytes);
}

// Bytes of the head of a block of `raw_length`.
constexpr std::size_t CodedHeadBytes(BlockCoding coding,
                                     std::uint64_t raw_length) {
  const std::size_t digests = coding == BlockCoding::kRoundedCopy ? 2 : 1;
  return 4 + 4 + digests * base::kDigestBytes +
         12 * CellCount(BytesInCells(coding, raw_length)) + 8;
}

struct CodedHead {
  struct Cell {
    std::uint32_t end = 0;  // Less the end of the head.
    std::uint64_t checksum = 0;
  };

  BlockCoding coding = BlockCoding::kPlanes;
  int width = 1;  // Bytes of a word: 1, 2, 4 or 8.
  WordMap map = WordMap::kNone;
  std::uint32_t raw_length = 0;
  base::Digest digest;  // Of the raw bytes that the cells have.
  base::Digest copy;    // Of the rounded copy, where there is one.
  std::vector<Cell> cells;

  std::size_t head_bytes() const { return CodedHeadBytes(coding, raw_length); }
  std::uint32_t in_cells() const {
    return static_cast<std::uint32_t>(BytesInCells(coding, raw_length));
  }
  std::uint32_t begin(std::size_t cell) const {
    return cell == 0 ? 0 : cells[cell - 1].end;
  }
  std::uint32_t raw_bytes(std::size_t cell) const {
    const auto at = static_cast<std::uint32_t>(cell) * kCellBytes;
    return in_cells() - at < kCellBytes ? in_cells() - at : kCellBytes;
  }
};

// REQUIRES: a cell for each kCellBytes that are in cells.
std::string EncodeCodedHead(const CodedHead& head);

// The head of a coded block of `raw_length` bytes that takes `stored_length`
// bytes; `stored` begins with it. kDataLoss where it is not whole, is of
// another length, or has cells that are not as long as they must be.
absl::StatusOr<CodedHead> DecodeCodedHead(std::string_view stored,
                                          std::uint64_t stored_length,
                                          std::uint64_t raw_length);

// True where `stored` is a whole coded block, whatever its length: head, cells
// and checksums. Bytes that are no coded block have such a form by design only,
// never by chance.
bool IsCodedBlock(std::string_view stored);

// The raw length that its head claims. REQUIRES: IsCodedBlock().
std::uint32_t CodedPayloadBytes(std::string_view stored);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_CODING_CODED_BLOCK_H_
