// SPDX-License-Identifier: Apache-2.0

// Where a save puts small leaves, by their sizes alone.

#ifndef CKPTREE_CORE_VERSION_PACK_PLACES_H_
#define CKPTREE_CORE_VERSION_PACK_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/array/pack_layout.h"
#include "schema/limits.h"

namespace ckptree::internal {

// Bytes of a block of `small`.
struct PackPlace {
  std::uint32_t n = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Adds the leaves [first, first + count) to `layout`, of which `array_bytes`
// has the sizes, and calls `fn` with ordinal, bytes and place of each that is
// packed. False at the first that is too large to be.
template <typename Fn>
bool AddToPacks(std::span<const std::uint32_t> array_bytes, std::uint32_t first,
                std::uint32_t count, PackLayout* layout, Fn fn) {
  for (std::uint32_t at = first; at < first + count; ++at) {
    const std::uint32_t bytes = array_bytes[at];
    // Of values that are no arrays most stand in their record, too.
    if (bytes <= schema::kMaxInlineBytes) continue;
    if (bytes >= kPackedLeafBytes) return false;
    fn(at, bytes, layout->Add(bytes));
  }
  return true;
}

// The places of all leaves of a part, as a save puts them that writes each:
// made once, so that a leaf is looked up without those before it.
//
// Immutable, and so for any threads.
class PackPlaces {
 public:
  PackPlaces() = default;  // Of no leaves.
  PackPlaces(PackLayout::Kind kind, std::span<const std::uint32_t> array_bytes);

  // Nothing where the leaf is not packed, or a save of all leaves has more
  // bytes than stay in `small`.
  std::optional<PackPlace> At(std::uint32_t ordinal) const;

 private:
  struct Place {
    std::uint32_t pack = 0;  // Counted from 1; 0: the leaf is in none.
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
  };
  std::vector<Place> places_;              // By ordinal.
  std::vector<std::uint32_t> pack_bytes_;  // By pack - 1.
};

// More new bytes than these are in no save whose blocks are in `small`.
inline constexpr std::uint64_t kMostGuessedBytes = std::uint64_t{1} << 20;

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_PACK_PLACES_H_
