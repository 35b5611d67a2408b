// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "python/src/met_arrays.h"

#include <cstring>
#include <string_view>

namespace ckptree::python {

bool ObjectSet::Add(PyObject* object) {
  // Python aligns its objects to 8 bytes at least; most lie at 16.
  const auto address = reinterpret_cast<std::uintptr_t>(object);
  const std::uintptr_t piece = address >> kPieceBits;
  if (last_ == nullptr || piece != last_piece_) {
    std::unique_ptr<Bits>& bits = pieces_[piece];
    if (bits == nullptr) {
      bits = std::make_unique<Bits>((std::size_t{1} << kPieceBits) / 8 / 64);
    }
    last_ = bits.get();
    last_piece_ = piece;
  }
  const std::uintptr_t at =
      (address & ((std::uintptr_t{1} << kPieceBits) - 1)) / 8;
  std::uint64_t& word = (*last_)[at / 64];
  const std::uint64_t bit = std::uint64_t{1} << (at % 64);
  const bool is_new = (word & bit) == 0;
  word |= bit;
  return is_new;
}

bool MetArrays::Add(PyObject* array, const Path& path) {
  if (!met_.Add(array)) return false;
  const std::string encoded = path.Encode();
  const auto size = static_cast<std::uint32_t>(encoded.size());
  order_.push_back(array);
  paths_.append(reinterpret_cast<const char*>(&size), sizeof(size));
  paths_ += encoded;
  return true;
}

absl::StatusOr<Path> MetArrays::PathOf(PyObject* array) {
  const auto size_at = [this](std::size_t place) {
    std::uint32_t size = 0;
    std::memcpy(&size, paths_.data() + place, sizeof(size));
    return std::size_t{size};
  };
  for (; placed_ < order_.size(); ++placed_) {
    places_.try_emplace(order_[placed_], placed_to_);
    placed_to_ += sizeof(std::uint32_t) + size_at(placed_to_);
  }
  const std::size_t place = places_.at(array);
  return Path::Decode(std::string_view(paths_).substr(
      place + sizeof(std::uint32_t), size_at(place)));
}

}  // namespace ckptree::python
