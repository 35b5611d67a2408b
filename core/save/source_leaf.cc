// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/save/source_leaf.h"

#include <cstring>
#include <utility>

#include "base/digest.h"
#include "core/array/chunk_grid.h"

namespace ckptree::internal {

std::string_view KeptBytes::Keep(std::string_view bytes) {
  constexpr std::size_t kBlock = 64 << 10;
  if (bytes.size() > kBlock / 16) return Keep(std::string(bytes));
  if (bytes.size() > left_) {
    std::string& block = blocks_.emplace_back();
    block.resize(kBlock);
    free_ = block.data();
    left_ = kBlock;
  }
  if (!bytes.empty()) std::memcpy(free_, bytes.data(), bytes.size());
  const std::string_view kept(free_, bytes.size());
  free_ += bytes.size();
  left_ -= bytes.size();
  return kept;
}

std::string_view KeptBytes::Keep(std::string&& bytes) {
  constexpr std::size_t kFew = 256;
  if (bytes.size() <= kFew) return Keep(std::string_view(bytes));
  return blocks_.emplace_back(std::move(bytes));
}

std::size_t LeafTypes::Same::operator()(const LeafType* type) const {
  const schema::TreeEntry& entry = type->entry;
  const std::string_view shape(
      reinterpret_cast<const char*>(entry.shape.data()),
      entry.shape.size() * sizeof(std::int64_t));
  const std::uint64_t number = (static_cast<std::uint64_t>(entry.kind) << 16) |
                               (static_cast<std::uint64_t>(entry.dtype) << 1) |
                               (entry.packed ? 1 : 0);
  return base::ChecksumOf(shape, entry.tag) ^ (number * 0x9e3779b97f4a7c15);
}

const LeafType* LeafTypes::Of(schema::TreeEntry entry, std::uint64_t bytes) {
  LeafType& type = storage_->types.emplace_back();
  type.entry = std::move(entry);
  const auto [known, is_new] = known_.insert(&type);
  if (!is_new) {
    storage_->types.pop_back();
    return *known;
  }
  type.bytes = bytes;
  if (type.entry.kind == EntryKind::kArray) {
    type.whole.start.assign(type.entry.shape.size(), 0);
    type.whole.shape = type.entry.shape;
    type.whole.chunk_shape = DefaultChunkShape(
        type.entry.dtype, type.entry.packed, type.entry.shape, chunk_bytes_);
  }
  return &type;
}

}  // namespace ckptree::internal
