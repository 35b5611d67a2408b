// SPDX-License-Identifier: Apache-2.0

// How small leaves share blocks: what a save writes, and where a reader guesses
// the bytes of a leaf to be before it has read the record that says so.

#ifndef CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_
#define CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "schema/slice_proof.h"

namespace ckptree::internal {

// Leaves below this many bytes are packed, unless they stand in their record.
inline constexpr std::uint64_t kPackedLeafBytes = 32 << 10;

// A pack is closed when the next leaf would make it larger than this: one read
// of a small leaf may read the whole pack.
inline constexpr std::uint64_t kPackBytes = 64 << 10;

// Puts leaves into packs, one after the other.
class PackLayout {
 public:
  enum class Kind {
    // What may go into a segment: a value of 512 bytes and more begins at a
    // multiple of 64, so that a view of it needs no copy.
    kPlain,
    // What stays in `small`, where views are copies: behind such a value there
    // is room for a proof.
    kProved,
  };

  // What a leaf of `size` bytes takes of a pack of either kind, at most: what a
  // leaf with its padding and its proof keeps alive of it.
  static std::uint64_t Taken(std::uint64_t size) {
    if (size < schema::kLeastProvedBytes) return Aligned(size, 16);
    return std::max(Aligned(size + schema::kSliceProofBytes, 16),
                    Aligned(size, 64));
  }

  explicit PackLayout(Kind kind) : proved_(kind == Kind::kProved) {}

  struct Place {
    std::size_t pack = 0;  // Counted from 0.
    std::uint64_t offset = 0;
  };

  Place Add(std::uint64_t size) {
    const bool large = size >= schema::kLeastProvedBytes;
    const std::uint64_t align = large && !proved_ ? 64 : 16;
    const std::uint64_t taken =
        size + (large && proved_ ? schema::kSliceProofBytes : 0);
    if (packs_ == 0 || bytes_ + align + taken > kPackBytes) {
      ++packs_;
      closed_ += bytes_;
      bytes_ = 0;
    }
    const std::uint64_t offset = Aligned(bytes_, align);
    bytes_ = offset + taken;
    return {packs_ - 1, offset};
  }

  std::size_t packs() const { return packs_; }
  // Of the last one.
  std::uint64_t bytes() const { return bytes_; }
  // Of all.
  std::uint64_t total() const { return closed_ + bytes_; }

 private:
  static std::uint64_t Aligned(std::uint64_t bytes, std::uint64_t to) {
    return (bytes + to - 1) / to * to;
  }

  bool proved_;
  std::size_t packs_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t closed_ = 0;  // Of those before the last one.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_
