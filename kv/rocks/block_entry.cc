// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/block_entry.h"

#include "kv/rocks/table_parts.h"

namespace ckptree::kv {
namespace {

constexpr std::uint64_t kMaxValueBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{64} << 10;
constexpr char kPut = 1;

}  // namespace

bool IsSuffix(std::string_view suffix) {
  return (suffix[0] == kPut || suffix[0] == kDeletion) && suffix[5] == 0 &&
         suffix[6] == 0 && suffix[7] == 0;
}

std::optional<EntryHead> ParseHead(std::string_view bytes) {
  BlockReader reader(bytes);
  const auto shared = reader.Varint();
  const auto unshared = reader.Varint();
  const auto value = reader.Varint();
  if (!shared.has_value() || !unshared.has_value() || !value.has_value() ||
      *unshared == 0 || *shared > kMaxKeyBytes ||
      *unshared > kMaxKeyBytes + kKeySuffixBytes || *value > kMaxValueBytes) {
    return std::nullopt;
  }
  return EntryHead{*shared, *unshared, *value, bytes.size() - reader.left()};
}

std::optional<FirstEntry> ParseFirst(std::string_view bytes) {
  const std::optional<EntryHead> head = ParseHead(bytes);
  if (!head.has_value() || head->shared != 0 ||
      head->unshared <= kKeySuffixBytes ||
      head->unshared > bytes.size() - head->number_bytes) {
    return std::nullopt;
  }
  const std::string_view key = bytes.substr(head->number_bytes, head->unshared);
  if (!IsSuffix(key.substr(key.size() - kKeySuffixBytes))) return std::nullopt;
  return FirstEntry{*head, key};
}

std::optional<std::string_view> FindPut(std::string_view block,
                                        std::string_view key) {
  // A block with a hash index of its own counts its restarts in 31 bits; ours
  // have none, and so few.
  const std::string_view entries = BlockEntries(block);
  if (entries.empty()) return std::nullopt;
  const std::uint64_t restarts = (block.size() - entries.size()) / 4 - 1;
  const auto restart = [&](std::uint64_t i) -> std::string_view {
    const std::uint64_t at =
        LittleEndian32(block.substr(entries.size() + 4 * i, 4));
    return at < entries.size() ? entries.substr(at) : std::string_view();
  };
  // The last restart below the key: of several entries with one key the first
  // is the newest.
  std::uint64_t first = 0;
  for (std::uint64_t end = restarts; first + 1 < end;) {
    const std::uint64_t middle = first + (end - first) / 2;
    const std::optional<FirstEntry> entry = ParseFirst(restart(middle));
    if (!entry.has_value()) return std::nullopt;
    const bool below =
        entry->key.substr(0, entry->key.size() - kKeySuffixBytes) < key;
    (below ? first : end) = middle;
  }
  std::string at;
  for (std::string_view rest = restart(first); !rest.empty();) {
    const std::optional<EntryHead> head = ParseHead(rest);
    if (!head.has_value() || head->shared > at.size() ||
        head->unshared > rest.size() - head->number_bytes ||
        head->value_bytes > rest.size() - head->number_bytes - head->unshared) {
      return std::nullopt;
    }
    at.resize(head->shared);
    at.append(rest.substr(head->number_bytes, head->unshared));
    if (at.size() < kKeySuffixBytes) return std::nullopt;
    const std::string_view found =
        std::string_view(at).substr(0, at.size() - kKeySuffixBytes);
    if (found == key) {
      if (at[found.size()] != kPut) return std::nullopt;
      return rest.substr(head->number_bytes + head->unshared,
                         head->value_bytes);
    }
    if (found > key) return std::nullopt;
    rest.remove_prefix(head->number_bytes + head->unshared + head->value_bytes);
  }
  return std::nullopt;
}

bool FrameSingle(std::string_view key, std::string* block) {
  const auto place = ValueInBlock(key.size(), block->size());
  if (!place.has_value()) return false;
  std::string head;
  AppendVarint(0, &head);
  AppendVarint(key.size() + kKeySuffixBytes, &head);
  AppendVarint(place->size, &head);
  head.append(key);
  head.append(kPlainSuffix);
  block->replace(0, head.size(), head);
  block->replace(block->size() - kRestartsBytes, kRestartsBytes,
                 std::string_view("\0\0\0\0\1\0\0\0", kRestartsBytes));
  return true;
}

}  // namespace ckptree::kv
