// SPDX-License-Identifier: Apache-2.0

#include "core/version/pack_places.h"

#include "schema/keys.h"

namespace ckptree::internal {

PackPlaces::PackPlaces(PackLayout::Kind kind,
                       std::span<const std::uint32_t> array_bytes) {
  places_.resize(array_bytes.size());
  PackLayout layout(kind);
  const bool all = AddToPacks(
      array_bytes, 0, static_cast<std::uint32_t>(array_bytes.size()), &layout,
      [&](std::uint32_t at, std::uint32_t bytes, PackLayout::Place place) {
        pack_bytes_.resize(place.pack + 1);
        pack_bytes_.back() = static_cast<std::uint32_t>(layout.bytes());
        places_[at] = {static_cast<std::uint32_t>(place.pack + 1),
                       static_cast<std::uint32_t>(place.offset), bytes};
      });
  if (!all || layout.total() > kMostGuessedBytes) *this = PackPlaces();
}

std::optional<PackPlace> PackPlaces::At(std::uint32_t ordinal) const {
  if (ordinal >= places_.size() || places_[ordinal].pack == 0) {
    return std::nullopt;
  }
  const Place& place = places_[ordinal];
  return PackPlace{.n = schema::BlockNumber(0, place.pack),
                   .block_bytes = pack_bytes_[place.pack - 1],
                   .offset = place.offset,
                   .bytes = place.bytes};
}

}  // namespace ckptree::internal
