// SPDX-License-Identifier: Apache-2.0

// Damaged rows files: always noticed, and never a row that was not written.

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/journal/row.h"
#include "kv/journal/rows_file.h"
#include "tests/kv/rows_fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::StatusIs;
using ::ckptree::testing::TempDir;
using ::testing::HasSubstr;

// Every row of `found` is one of `whole`; the damages account for each that is
// missing, by number where they tell one and by the keys around it.
void ExpectAccounted(const Found& found, const Rows& whole) {
  std::size_t told = 0;
  bool all_told = true;
  for (const RowsDamage& damage : found.damage) {
    told += damage.rows.value_or(0);
    all_told = all_told && damage.rows.has_value();
  }
  for (const auto& [key, value] : found.rows) {
    const auto written = whole.find(key);
    ASSERT_NE(written, whole.end()) << key.key;
    ASSERT_EQ(written->second, value) << key.key;
  }
  if (all_told) {
    ASSERT_EQ(found.rows.size() + told, whole.size());
  }
  for (const auto& [key, value] : whole) {
    if (found.rows.contains(key)) continue;
    ASSERT_TRUE(std::any_of(found.damage.begin(), found.damage.end(),
                            [&lost = key](const RowsDamage& it) {
                              return it.rows != 0u &&
                                     (!it.after || *it.after < lost) &&
                                     (!it.before || lost < *it.before);
                            }))
        << key.key;
  }
}

// Both kinds of readers on `bytes`, which are not those of `whole`.
void ExpectNoticed(const std::string& path, const std::string& bytes,
                   const Rows& whole) {
  Overwrite(path, bytes);
  const Found stopped = ReadAll(path, RowsReader::OnDamage::kStop);
  ASSERT_THAT(stopped.status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  for (const auto& [key, value] : stopped.rows) {
    ASSERT_TRUE(whole.contains(key));
    ASSERT_EQ(whole.at(key), value);
  }
  const Found went_on = ReadAll(path, RowsReader::OnDamage::kGoOn);
  if (!went_on.status.ok()) {
    ASSERT_THAT(went_on.status, StatusIs(absl::StatusCode::kDataLoss));
    ASSERT_TRUE(went_on.rows.empty());
    return;
  }
  ASSERT_FALSE(went_on.damage.empty());
  ASSERT_NO_FATAL_FAILURE(ExpectAccounted(went_on, whole));
}

TEST(RowsDamageTest, EveryFlippedByteIsNoticed) {
  const TempDir dir;
  const Rows rows = SomeRows(40);
  const std::string path = Write(dir, rows, 5, /*block_bytes=*/200);
  const std::string whole = Contents(path);
  ASSERT_GT(whole.size(), 3000u);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    const char bit = static_cast<char>(1u << (random() % 8));
    damaged[i] = static_cast<char>(damaged[i] ^ bit);
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, damaged, rows));
    // One flip costs one block at most.
    const Found found = ReadAll(path, RowsReader::OnDamage::kGoOn);
    ASSERT_OK(found.status);
    ASSERT_EQ(found.damage.size(), 1u);
    ASSERT_GE(found.rows.size() + 12, rows.size());
  }
}

TEST(RowsDamageTest, EveryCutIsNoticed) {
  const TempDir dir;
  const Rows rows = SomeRows(20);
  const std::string path = Write(dir, rows, 5, /*block_bytes=*/200);
  const std::string whole = Contents(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, whole.substr(0, size), rows));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, whole + '\0', rows));
  ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, whole + whole, rows));
}

TEST(RowsDamageTest, WhatStandsBehindTheFooterCostsNoRow) {
  const TempDir dir;
  const Rows rows = SomeRows(20);
  const std::string path = Write(dir, rows, 5, /*block_bytes=*/200);
  const std::string whole = Contents(path);
  for (const std::string& more :
       {std::string(1, '\0'), std::string(5000, 'x'), whole}) {
    Overwrite(path, whole + more);
    const Found found = ReadAll(path, RowsReader::OnDamage::kGoOn);
    ASSERT_OK(found.status);
    EXPECT_EQ(found.rows, rows);
    ASSERT_EQ(found.damage.size(), 1);
    EXPECT_EQ(found.damage[0].offset, whole.size());
    EXPECT_EQ(found.damage[0].bytes, more.size());
    EXPECT_EQ(found.damage[0].rows, 0u);
  }
}

// Zeros, noise, and whole pieces of the file itself or of one of another
// commit, at other places, several at once.
TEST(RowsDamageTest, RandomDamageIsNoticed) {
  const TempDir dir;
  const TempDir other_dir;
  const Rows rows = SomeRows(60);
  const std::string path = Write(dir, rows, 5, /*block_bytes=*/300);
  const std::string whole = Contents(path);
  Rows changed = rows;
  for (auto& [key, value] : changed) {
    if (auto* const bytes = std::get_if<std::string>(&value)) {
      std::fill(bytes->begin(), bytes->end(), '?');
    }
  }
  const std::string other =
      Contents(Write(other_dir, changed, 6, /*block_bytes=*/300));
  ASSERT_EQ(whole.size(), other.size());
  std::mt19937 random(2);
  const auto below = [&](std::size_t count) { return random() % count; };
  int noticed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (std::size_t n = 0; n <= below(3); ++n) {
      const std::size_t at = below(damaged.size());
      const std::size_t count = std::min(1 + below(700), damaged.size() - at);
      switch (below(5)) {
        case 0:
          damaged.replace(at, count, count, '\0');
          break;
        case 1:
          for (std::size_t i = at; i < at + count; ++i) {
            damaged[i] = static_cast<char>(random());
          }
          break;
        case 2:
          damaged.replace(at, count, other, at, count);
          break;
        case 3:
          damaged.replace(at, count, whole, below(whole.size()), count);
          break;
        default:
          damaged.erase(at, count);
          break;
      }
      if (damaged.empty()) damaged.push_back('x');
    }
    if (damaged == whole) continue;
    ++noticed;
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, damaged, rows));
  }
  EXPECT_GT(noticed, 2900);
}

// A header of the file of another commit, right in itself and at its place.
TEST(RowsDamageTest, BlockOfAnotherFileIsNotTaken) {
  const TempDir dir;
  const TempDir other_dir;
  const Rows rows = SomeRows(60);
  const std::string path = Write(dir, rows, 5, 300);
  std::string bytes = Contents(path);
  const std::string other = Contents(Write(other_dir, rows, 6, 300));
  const std::size_t from = bytes.find("ROWB", 200);
  const std::size_t to = bytes.find("ROWB", from + 1);
  ASSERT_EQ(other.substr(from, 28), bytes.substr(from, 28));
  bytes.replace(from, to - from, other, from, to - from);
  ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, bytes, rows));
}

// A file in a row of another one.
TEST(RowsDamageTest, ValueThatLooksLikeBlocksIsNoBlock) {
  const TempDir dir;
  const TempDir inner_dir;
  const std::string inner = Contents(Write(inner_dir, SomeRows(60), 5, 300));
  Rows rows = SomeRows(60);
  rows[RecordRow(5)] = inner;
  const std::string path = Write(dir, rows, 5, 300);
  std::string bytes = Contents(path);
  const std::size_t header = bytes.find(inner) - 2 - 4 - 8 - 4 - 44;
  ASSERT_EQ(bytes.substr(header, 4), "ROWB");
  bytes[header + 5] = static_cast<char>(bytes[header + 5] ^ 1);
  ASSERT_NO_FATAL_FAILURE(ExpectNoticed(path, bytes, rows));
  const Found found = ReadAll(path, RowsReader::OnDamage::kGoOn);
  EXPECT_EQ(found.rows.size(), rows.size() - 1);
}

// The place of the damage, in a file larger than what is read at once.
TEST(RowsDamageTest, DamageIsTold) {
  const TempDir dir;
  Rows rows;
  for (int i = 0; i < 1000; ++i) rows[RecordRow(i)] = std::string(1000, 'x');
  const std::string path = Write(dir, rows);
  std::string bytes = Contents(path);
  const std::size_t third =
      bytes.find("ROWB", bytes.find("ROWB", bytes.find("ROWB") + 1) + 1);
  const std::size_t fourth = bytes.find("ROWB", third + 1);
  std::string flipped = bytes;
  flipped[third + 1000] = static_cast<char>(flipped[third + 1000] ^ 4);
  Overwrite(path, flipped);
  EXPECT_THAT(
      ReadAll(path, RowsReader::OnDamage::kStop).status,
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr(absl::StrFormat("%s, offset %d", path, third))));
  for (const std::size_t hit : {third + 1000, third + 6}) {
    flipped = bytes;
    flipped[hit] = static_cast<char>(flipped[hit] ^ 4);
    Overwrite(path, flipped);
    const Found found = ReadAll(path, RowsReader::OnDamage::kGoOn);
    ASSERT_OK(found.status);
    ASSERT_EQ(found.damage.size(), 1u);
    EXPECT_EQ(found.damage[0].offset, third);
    EXPECT_EQ(found.damage[0].bytes, fourth - third);
    EXPECT_EQ(found.damage[0].rows, 64u);
    EXPECT_EQ(found.damage[0].after, RecordRow(127));
    EXPECT_EQ(found.damage[0].before, RecordRow(192));
    EXPECT_EQ(found.rows.size(), 936u);
  }
}

}  // namespace
}  // namespace ckptree::kv
