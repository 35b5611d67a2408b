// SPDX-License-Identifier: Apache-2.0

// The index of a table, searched as it stands.

#include "kv/rocks/table_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "kv/rocks/table_parts.h"

namespace ckptree::kv {
namespace {

std::optional<TableIndex> IndexOf(std::string_view block) {
  auto bytes = std::make_unique_for_overwrite<char[]>(block.size());
  std::copy(block.begin(), block.end(), bytes.get());
  return TableIndex::Of(std::move(bytes), block.size());
}

void AppendWord(std::size_t value, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>(value >> shift));
  }
}

// As RocksDB writes it, with a restart at every `interval`th entry.
std::string BlockOf(const std::vector<IndexEntry>& entries,
                    std::size_t interval = 1) {
  std::string block;
  std::vector<std::size_t> restarts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i % interval == 0) restarts.push_back(block.size());
    AppendVarint(0, &block);
    AppendVarint(entries[i].last_key.size(), &block);
    block += entries[i].last_key;
    AppendVarint(entries[i].place.offset, &block);
    AppendVarint(entries[i].place.size, &block);
  }
  for (const std::size_t restart : restarts) AppendWord(restart, &block);
  AppendWord(restarts.size(), &block);
  return block;
}

// Keys of even numbers, one of them long; blocks that follow each other.
std::vector<IndexEntry> Entries(std::size_t count) {
  std::vector<IndexEntry> entries;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::string key = absl::StrFormat("key%05d", 2 * i);
    if (i == 7) key += std::string(300, 'x');
    const std::uint64_t size = 100 + 50 * i;
    entries.push_back({std::move(key), {offset, size}});
    offset += size + kBlockTrailerBytes;
  }
  return entries;
}

TEST(TableIndexTest, FindsWhatAListOfItsEntriesFinds) {
  for (const std::size_t count : {1u, 2u, 3u, 40u, 1000u}) {
    const std::vector<IndexEntry> entries = Entries(count);
    const std::optional<TableIndex> index = IndexOf(BlockOf(entries));
    ASSERT_TRUE(index.has_value());
    ASSERT_EQ(index->size(), count);
    EXPECT_TRUE(index->IsWhole());
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<TableIndex::Entry> entry = index->At(i);
      ASSERT_TRUE(entry.has_value());
      EXPECT_EQ(entry->last_key, entries[i].last_key);
      EXPECT_EQ(entry->place.offset, entries[i].place.offset);
      EXPECT_EQ(entry->place.size, entries[i].place.size);
    }
    EXPECT_FALSE(index->At(count).has_value());
    for (std::size_t n = 0; n <= 2 * count; ++n) {
      const std::string key = absl::StrFormat("key%05d", n);
      const auto expected =
          std::lower_bound(entries.begin(), entries.end(), key,
                           [](const IndexEntry& e, std::string_view k) {
                             return e.last_key < k;
                           });
      EXPECT_EQ(index->Find(key),
                static_cast<std::size_t>(expected - entries.begin()))
          << key;
    }
  }
}

TEST(TableIndexTest, FindsTheSameFromAnywhere) {
  for (const std::size_t count : {1u, 2u, 3u, 40u}) {
    const TableIndex index = TableIndex::Of(Entries(count));
    for (std::size_t key = 0; key <= 2 * count; ++key) {
      const std::string name = absl::StrFormat("key%05d", key);
      for (std::size_t guess = 0; guess < count + 3; ++guess) {
        ASSERT_EQ(index.FindNear(name, guess), index.Find(name))
            << count << " " << key << " " << guess;
      }
    }
  }
  EXPECT_EQ(TableIndex().FindNear("key", 0), 0);
  EXPECT_EQ(TableIndex().FindNear("key", 5), 0);
}

TEST(TableIndexTest, OfEntriesIsTheSame) {
  const std::vector<IndexEntry> entries = Entries(40);
  const TableIndex index = TableIndex::Of(entries);
  ASSERT_EQ(index.size(), entries.size());
  EXPECT_TRUE(index.IsWhole());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(index.Find(entries[i].last_key), i);
  }
  EXPECT_EQ(TableIndex::Of({}).size(), 0);
  EXPECT_EQ(TableIndex::Of({}).Find("key"), 0);
}

// Entries between restarts are not found by halves.
TEST(TableIndexTest, AnotherIndexIsRefused) {
  EXPECT_FALSE(IndexOf(BlockOf(Entries(40), 2)).has_value());
  EXPECT_FALSE(IndexOf(BlockOf(Entries(40), 16)).has_value());
  EXPECT_FALSE(IndexOf("").has_value());
  EXPECT_FALSE(IndexOf(std::string(4, '\0')).has_value());
  EXPECT_FALSE(IndexOf(std::string(64, '\xff')).has_value());
}

TEST(TableIndexTest, BlocksWithAGapAreNotWhole) {
  std::vector<IndexEntry> entries = Entries(40);
  entries[20].place.size -= 1;
  const std::optional<TableIndex> index = IndexOf(BlockOf(entries));
  ASSERT_TRUE(index.has_value());
  EXPECT_FALSE(index->IsWhole());
}

// Whatever a byte of it is, nothing beyond the block is read.
TEST(TableIndexTest, AnyByteMayBeWrong) {
  const std::string block = BlockOf(Entries(20));
  for (std::size_t at = 0; at < block.size(); ++at) {
    for (const char wrong : {'\0', '\x7f', '\x80', '\xff'}) {
      std::string damaged = block;
      damaged[at] = wrong;
      const std::optional<TableIndex> index = IndexOf(damaged);
      if (!index.has_value()) continue;
      for (int n = 0; n < 42; ++n) {
        const std::string key = absl::StrFormat("key%05d", n);
        EXPECT_LE(index->Find(key), index->size());
        EXPECT_LE(index->FindNear(key, at % 20), index->size());
      }
      static_cast<void>(index->IsWhole());
    }
  }
}

// However keys are spread, and with a marker above them all.
TEST(TableIndexTest, FindsKeysThatAreNotSpreadEvenly) {
  std::mt19937_64 random(7);
  for (const int shift : {0, 20, 50, 62}) {
    std::set<std::string> keys;
    while (keys.size() < 500) {
      // Most of them small, where it is shifted by much.
      std::uint64_t number = random() >> (random() % 64 < 32 ? shift : 0);
      std::string key = "v";
      for (int i = 56; i >= 0; i -= 8) {
        key += static_cast<char>(number >> i);
      }
      if (number % 3 == 0) key.resize(3 + number % 7);
      keys.insert(std::move(key));
      if (shift == 62) keys.insert("v" + std::string(keys.size(), 'a'));
    }
    keys.insert("\xff marker");
    std::vector<IndexEntry> entries;
    std::uint64_t offset = 0;
    for (const std::string& key : keys) {
      entries.push_back({key, {offset, 100}});
      offset += 100 + kBlockTrailerBytes;
    }
    const std::optional<TableIndex> index = IndexOf(BlockOf(entries));
    ASSERT_TRUE(index.has_value());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string& key = entries[i].last_key;
      for (const std::string& asked :
           {key, key + '\0', key.substr(0, key.size() - 1), "w" + key}) {
        const auto at = std::lower_bound(
            entries.begin(), entries.end(), asked,
            [](const IndexEntry& entry, const std::string& name) {
              return entry.last_key < name;
            });
        ASSERT_EQ(index->Find(asked),
                  static_cast<std::size_t>(at - entries.begin()))
            << shift << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace ckptree::kv
