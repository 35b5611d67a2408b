// SPDX-License-Identifier: Apache-2.0

// A row as the journal keeps it.

#ifndef CKPTREE_KV_JOURNAL_ROW_H_
#define CKPTREE_KV_JOURNAL_ROW_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/digest.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Only kRecords and kSmall have rows. Ordered by space, then key bytes.
struct RowKey {
  schema::Space space = schema::Space::kRecords;
  std::string key;

  friend auto operator<=>(const RowKey&, const RowKey&) = default;
};

// A block of array bytes in `small`. Its bytes stand in the index and, for a
// while, in the first copy of the journal; all else keeps this name of them.
struct BlockName {
  std::uint64_t length = 0;
  base::Digest digest{};  // XXH3-128 of its bytes.

  friend bool operator==(const BlockName&, const BlockName&) = default;
};

// The bytes of the row, or the name of a block.
using RowValue = std::variant<std::string, BlockName>;

// A key of `small` that names array bytes: version u64, part u16, kind u8 (2),
// n u32.
inline bool IsBlockKey(const RowKey& key) {
  constexpr std::size_t kBytes = 8 + 2 + 1 + 4;
  constexpr std::size_t kKindAt = 8 + 2;
  return key.space == schema::Space::kSmall && key.key.size() == kBytes &&
         key.key[kKindAt] == 2;
}

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_ROW_H_
