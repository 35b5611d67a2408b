// SPDX-License-Identifier: Apache-2.0

// How a block with one record lies in a file, as table format 5 writes it:
//
//   varint 0 (shared key bytes), varint key size, varint value size,
//   key, sequence and type (8), value | one restart (4), their count (4) |
//   compression (1), checksum (4)
//
// CHECKED, not assumed, wherever bytes are read by it: a digest decides.

#ifndef CKPTREE_KV_ROCKS_SEGMENT_LAYOUT_H_
#define CKPTREE_KV_ROCKS_SEGMENT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace ckptree::kv {

// Of a block of a segment, as the format has it.
inline constexpr std::size_t kSegmentKeyBytes = 14;
inline constexpr std::uint64_t kKeySuffixBytes = 8;
inline constexpr std::uint64_t kRestartsBytes = 4 + 4;
inline constexpr std::uint64_t kBlockTailBytes = kRestartsBytes + 1 + 4;

constexpr std::uint64_t VarintBytes(std::uint64_t value) {
  std::uint64_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Bytes before the value in its block.
constexpr std::uint64_t BytesBefore(std::uint64_t key_bytes,
                                    std::uint64_t value_bytes) {
  const std::uint64_t key = key_bytes + kKeySuffixBytes;
  return 1 + VarintBytes(key) + VarintBytes(value_bytes) + key;
}

struct ValuePlace {
  std::uint64_t offset = 0;  // In the block.
  std::uint64_t size = 0;
};

// The value in a block of `block_bytes`, the trailer not counted; nothing where
// no value gives a block of that size.
constexpr std::optional<ValuePlace> ValueInBlock(std::uint64_t key_bytes,
                                                 std::uint64_t block_bytes) {
  const std::uint64_t least = BytesBefore(key_bytes, 0) + kRestartsBytes;
  if (block_bytes < least) return std::nullopt;
  // The size of the value takes one byte at least, and is one of these.
  for (std::uint64_t more = 0; more < 9 && more <= block_bytes - least;
       ++more) {
    const std::uint64_t size = block_bytes - least - more;
    if (BytesBefore(key_bytes, size) + size + kRestartsBytes == block_bytes) {
      return ValuePlace{BytesBefore(key_bytes, size), size};
    }
  }
  return std::nullopt;
}

inline constexpr std::uint64_t kMostGapBytes = 4096 + 127;

// How many zeros a gap at `offset` has, whose key has `key_bytes`, so that the
// value of the next block, with `before` bytes before it, stands at a multiple
// of `alignment`: 4096 or less.
constexpr std::uint64_t GapBytes(std::uint64_t alignment, std::uint64_t offset,
                                 std::uint64_t key_bytes,
                                 std::uint64_t before) {
  // How many they are stands before them, in one byte or two, which moves the
  // place by one: none of 127 and 128 may do, and then it is the next place.
  for (const std::uint64_t digits : {std::uint64_t{1}, std::uint64_t{2}}) {
    const std::uint64_t end = offset + BytesBefore(key_bytes, 0) - 1 + digits +
                              kBlockTailBytes + before;
    const std::uint64_t zeros = (alignment - end % alignment) % alignment;
    if (VarintBytes(zeros) == digits) return zeros;
  }
  return alignment + 127;
}

// True for the key in `small` of a block of array bytes: version (8), part (2),
// kind (1), number (4).
constexpr bool IsArrayBlock(std::string_view small_key) {
  return small_key.size() == 15 && small_key[10] == 2;
}

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SEGMENT_LAYOUT_H_
