// SPDX-License-Identifier: Apache-2.0

// How small leaves share blocks: what a save writes, and where a reader guesses
// the bytes of a leaf to be before it has read the record that says so.

#ifndef CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_
#define CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace ckptree::internal {

// Leaves below this many bytes are packed, unless they stand in their record.
inline constexpr std::uint64_t kPackedLeafBytes = 32 << 10;

// A pack is closed when the next leaf would make it larger than this: one read
// of a small leaf may read the whole pack.
inline constexpr std::uint64_t kPackBytes = 64 << 10;

// Puts leaves into packs, one after the other.
class PackLayout {
 public:
  struct Place {
    std::size_t pack = 0;  // Counted from 0.
    std::uint64_t offset = 0;
  };

  Place Add(std::uint64_t size) {
    // Values of a cache line and more start on one: views need no copy.
    const std::uint64_t align = size >= 512 ? 64 : 16;
    if (packs_ == 0 || bytes_ + align + size > kPackBytes) {
      ++packs_;
      bytes_ = 0;
    }
    const std::uint64_t offset = (bytes_ + align - 1) / align * align;
    bytes_ = offset + size;
    return {packs_ - 1, offset};
  }

  std::size_t packs() const { return packs_; }
  // Of the last one.
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::size_t packs_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ARRAY_PACK_LAYOUT_H_
