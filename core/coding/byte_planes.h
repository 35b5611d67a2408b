// SPDX-License-Identifier: Apache-2.0

// Words of an array as planes of their bytes, and back.

#ifndef CKPTREE_CORE_CODING_BYTE_PLANES_H_
#define CKPTREE_CORE_CODING_BYTE_PLANES_H_

#include <array>
#include <cstddef>

namespace ckptree::internal {

inline constexpr std::size_t kMaxWordBytes = 8;

// By the place of the byte in its little-endian word; the first `width` of them
// are used.
template <typename Byte>
using Planes = std::array<Byte*, kMaxWordBytes>;

// Puts byte i of each of `count` words of `width` bytes (1, 2, 4 or 8) at
// `words` into planes[i]. `rotate`: each word is rotated by one bit before, so
// that the sign of a float is its lowest bit and its exponent fills the highest
// bytes. Nothing overlaps.
void SplitPlanes(const std::byte* words, std::size_t count, int width,
                 bool rotate, const Planes<std::byte>& planes);

// The reverse.
void MergePlanes(const Planes<const std::byte>& planes, std::size_t count,
                 int width, bool rotate, std::byte* words);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_CODING_BYTE_PLANES_H_
