// SPDX-License-Identifier: Apache-2.0

// The bfloat16 copy of an array of float32, which is a function of it.

#ifndef CKPTREE_CORE_CODING_ROUNDED_COPY_H_
#define CKPTREE_CORE_CODING_ROUNDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckptree::internal {

// Of a word of float32 the nearest of bfloat16, of two as near the even one. A
// NaN keeps its upper half and becomes a quiet one, as processors do it.
constexpr std::uint16_t RoundedWord(std::uint32_t word) {
  const std::uint32_t top = word >> 16;
  const bool nan = (word & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>(nan ? top | 0x40
                                        : (word + 0x7fff + (top & 1)) >> 16);
}

// Writes the copies of the little-endian words at `master`, half as many bytes.
// Nothing overlaps. REQUIRES: master.size() is a multiple of 4.
void RoundWords(std::span<const std::byte> master, std::byte* copy);

// True where `copy` is the copy of `master`.
bool IsRoundedCopy(std::span<const std::byte> master,
                   std::span<const std::byte> copy);

// True where the last third of `payload` is the copy of what is before it.
bool EndsWithRoundedCopy(std::span<const std::byte> payload);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_CODING_ROUNDED_COPY_H_
