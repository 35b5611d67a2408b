// SPDX-License-Identifier: Apache-2.0

// The index of a table, searched as it stands in its file.

#ifndef CKPTREE_KV_ROCKS_TABLE_INDEX_H_
#define CKPTREE_KV_ROCKS_TABLE_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "kv/rocks/table_parts.h"

namespace ckptree::kv {

// An index block has a restart at each entry, and so an entry is found by
// halves. A reader that asks for few of thousands of entries decodes those few.
class TableIndex {
 public:
  TableIndex() = default;

  // Of a whole block: `bytes` of it. Nothing where it is another index than
  // ParseIndex() takes, as far as that is told without all of its entries.
  static std::optional<TableIndex> Of(std::unique_ptr<char[]> block,
                                      std::size_t bytes);
  // The same of one that outlives it. Its bytes may become others: what is
  // found then is anything, within them.
  static std::optional<TableIndex> In(std::string_view block);
  // Of these, in ascending order.
  static TableIndex Of(std::span<const IndexEntry> entries);

  std::size_t size() const { return size_; }

  struct Entry {
    std::string_view last_key;  // As that of IndexEntry.
    BlockPlace place;
  };
  // Nothing where `i` is size(), and where the bytes of the entry are not those
  // of one, up to where the next begins.
  std::optional<Entry> At(std::size_t i) const;

  // The first entry whose last key is not below `key`; size() where there is no
  // such, and where an entry that is looked at cannot be parsed.
  std::size_t Find(std::string_view key) const;
  // The same, of an entry that is likely `guess` or not far from it.
  std::size_t FindNear(std::string_view key, std::size_t guess) const;

  // Whether all entries are there, and their blocks stand behind each other.
  bool IsWhole() const;

 private:
  // Of the entries from `first` to `end`; those before are below `key`, and it
  // is not above the last key of that at `end`.
  std::size_t FindIn(std::string_view key, std::size_t first,
                     std::size_t end) const;
  // Nothing where the entry cannot be parsed.
  std::optional<bool> IsBelow(std::size_t i, std::string_view key) const;
  std::uint64_t RestartAt(std::size_t i) const;
  // Of an entry; empty where it cannot be.
  std::string_view BytesAt(std::size_t i) const;

  std::unique_ptr<char[]> block_;  // Null where it is another's.
  std::string_view entries_;       // In the block;
  std::string_view restarts_;      // behind them, four bytes for each entry.
  std::size_t size_ = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_INDEX_H_
