// SPDX-License-Identifier: Apache-2.0

// The entries of a block, as table format 5 writes them.

#ifndef CKPTREE_KV_ROCKS_BLOCK_ENTRY_H_
#define CKPTREE_KV_ROCKS_BLOCK_ENTRY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kv/rocks/segment_layout.h"

namespace ckptree::kv {

// The first byte behind the key of a deletion, and all bytes there of a put
// into a file that no database wrote, or that was compacted to the bottom.
inline constexpr char kDeletion = 0;
inline constexpr std::string_view kPlainSuffix("\1\0\0\0\0\0\0\0",
                                               kKeySuffixBytes);

// A put or a deletion, with a sequence that is not absurd.
bool IsSuffix(std::string_view suffix);

struct EntryHead {
  std::uint64_t shared = 0;    // Key bytes of the entry before.
  std::uint64_t unshared = 0;  // Key bytes that follow, suffix included.
  std::uint64_t value_bytes = 0;
  std::uint64_t number_bytes = 0;  // The three, as they stand there.
};
std::optional<EntryHead> ParseHead(std::string_view bytes);

// The head and the whole key at the start of `bytes`.
struct FirstEntry {
  EntryHead head;
  std::string_view key;  // With its suffix.

  // Where the value begins and ends.
  std::uint64_t value() const { return head.number_bytes + key.size(); }
  std::uint64_t end() const { return value() + head.value_bytes; }
};
std::optional<FirstEntry> ParseFirst(std::string_view bytes);

// The value that the newest put of `key`, without a suffix, has in a block that
// is whole; nothing where it is not there, or was deleted. Stands in `block`.
std::optional<std::string_view> FindPut(std::string_view block,
                                        std::string_view key);

// Makes everything of a block with one record but its value what it would be
// for `key`; false where no value gives a block of that size.
bool FrameSingle(std::string_view key, std::string* block);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_BLOCK_ENTRY_H_
