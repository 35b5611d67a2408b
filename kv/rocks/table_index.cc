// SPDX-License-Identifier: Apache-2.0

// Hot path: per record that is read by its key.

#include "kv/rocks/table_index.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ckptree::kv {
namespace {

constexpr std::size_t kRestartBytes = 4;

void AppendLittleEndian32(std::uint64_t value, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>(value >> shift));
  }
}

std::optional<std::string_view> KeyOf(BlockReader* entry) {
  const auto shared = entry->Varint();
  const auto key_bytes = entry->Varint();
  if (!shared.has_value() || *shared != 0 || !key_bytes.has_value()) {
    return std::nullopt;
  }
  return entry->Bytes(*key_bytes);
}

}  // namespace

std::optional<TableIndex> TableIndex::Of(std::unique_ptr<char[]> block,
                                         std::size_t bytes) {
  std::optional<TableIndex> index = In({block.get(), bytes});
  if (index.has_value()) index->block_ = std::move(block);
  return index;
}

std::optional<TableIndex> TableIndex::In(std::string_view block) {
  TableIndex index;
  index.entries_ = BlockEntries(block);
  if (index.entries_.empty()) return std::nullopt;
  index.restarts_ = block.substr(index.entries_.size());
  index.restarts_.remove_suffix(kRestartBytes);  // Their count.
  index.size_ = index.restarts_.size() / kRestartBytes;
  if (index.size_ == 0 || index.RestartAt(0) != 0) return std::nullopt;
  // What is true of the ends alone is most of what tells another index.
  if (!index.At(0).has_value() || !index.At(index.size_ - 1).has_value()) {
    return std::nullopt;
  }
  return index;
}

TableIndex TableIndex::Of(std::span<const IndexEntry> entries) {
  if (entries.empty()) return TableIndex();
  std::string block;
  std::string restarts;
  for (const IndexEntry& entry : entries) {
    AppendLittleEndian32(block.size(), &restarts);
    AppendVarint(0, &block);
    AppendVarint(entry.last_key.size(), &block);
    block.append(entry.last_key);
    AppendVarint(entry.place.offset, &block);
    AppendVarint(entry.place.size, &block);
  }
  block.append(restarts);
  AppendLittleEndian32(entries.size(), &block);
  auto bytes = std::make_unique_for_overwrite<char[]>(block.size());
  std::copy(block.begin(), block.end(), bytes.get());
  return Of(std::move(bytes), block.size()).value_or(TableIndex());
}

std::uint64_t TableIndex::RestartAt(std::size_t i) const {
  return i == size_ ? entries_.size()
                    : LittleEndian32(
                          restarts_.substr(i * kRestartBytes, kRestartBytes));
}

std::string_view TableIndex::BytesAt(std::size_t i) const {
  const std::uint64_t begin = RestartAt(i);
  const std::uint64_t end = RestartAt(i + 1);
  if (begin >= end || end > entries_.size()) return {};
  return entries_.substr(begin, end - begin);
}

std::optional<TableIndex::Entry> TableIndex::At(std::size_t i) const {
  if (i >= size_) return std::nullopt;
  BlockReader reader(BytesAt(i));
  const auto key = KeyOf(&reader);
  const auto place = reader.Place();
  if (!key.has_value() || !place.has_value() || !reader.empty()) {
    return std::nullopt;
  }
  return Entry{*key, *place};
}

std::optional<bool> TableIndex::IsBelow(std::size_t i,
                                        std::string_view key) const {
  BlockReader reader(BytesAt(i));
  const std::optional<std::string_view> last_key = KeyOf(&reader);
  if (!last_key.has_value()) return std::nullopt;
  return *last_key < key;
}

std::size_t TableIndex::FindIn(std::string_view key, std::size_t first,
                               std::size_t end) const {
  while (first < end) {
    const std::size_t middle = first + (end - first) / 2;
    const std::optional<bool> below = IsBelow(middle, key);
    if (!below.has_value()) return size_;
    if (*below) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

std::size_t TableIndex::Find(std::string_view key) const {
  return FindIn(key, 0, size_);
}

std::size_t TableIndex::FindNear(std::string_view key,
                                 std::size_t guess) const {
  // From there by strides that grow, until it lies between two of them.
  std::size_t first = 0;
  std::size_t end = size_;
  std::size_t at = std::min(guess, size_);
  for (std::size_t stride = 1; at < end; stride *= 2) {
    const std::optional<bool> below = IsBelow(at, key);
    if (!below.has_value()) return size_;
    if (*below) {
      first = at + 1;
      if (end < size_) break;  // It was not below before.
      at = first + std::min(stride - 1, size_ - first);
    } else {
      end = at;
      if (first > 0 || at == 0) break;
      at -= std::min(stride, at);
    }
  }
  return FindIn(key, first, end);
}

bool TableIndex::IsWhole() const {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    const std::optional<Entry> entry = At(i);
    if (!entry.has_value() || entry->place.offset != end) return false;
    end = entry->place.offset + entry->place.size + kBlockTrailerBytes;
  }
  return true;
}

}  // namespace ckptree::kv
