// SPDX-License-Identifier: Apache-2.0

// Rewriting segment files: what is kept is kept exactly, and an error changes
// nothing.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Not;

constexpr int kRecords = 6;
constexpr std::size_t kBytes = 10000;

class RewriteTest : public KvTest {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, Create());
    for (std::uint64_t version = 1; version <= 4; ++version) {
      ASSERT_OK_AND_ASSIGN(
          const StagedSegment segment,
          Stage(*database_, version, Space::kChunks, kRecords, kBytes));
      ASSERT_OK(database_->Adopt({segment}));
    }
    ASSERT_OK(database_->Secure());
  }

  std::vector<LiveFile> Files() {
    auto files = database_->LiveFiles().value();
    std::sort(files.begin(), files.end(),
              [](const LiveFile& a, const LiveFile& b) {
                return a.first_key < b.first_key;
              });
    return files;
  }

  // Every key of `chunks` that is no gap, with its value checked.
  std::set<std::string> Keys() {
    std::set<std::string> keys;
    auto scan = database_->Scan(Space::kChunks, "", "").value();
    for (; scan.Valid(); scan.Next()) {
      if (scan.key().size() == 16) keys.insert(std::string(scan.key()));
    }
    EXPECT_OK(scan.status());
    return keys;
  }

  static bool IsGap(std::string_view key) { return key.size() == 17; }

  std::unique_ptr<Database> database_;
};

TEST_F(RewriteTest, KeepsWhatItIsToldToInOneFile) {
  const std::vector<LiveFile> files = Files();
  ASSERT_EQ(files.size(), 4);
  std::set<std::string> wanted;
  for (std::uint64_t version = 1; version <= 4; ++version) {
    for (int i = 0; i < kRecords; ++i) wanted.insert(ChunkKey(version, i));
  }
  EXPECT_EQ(Keys(), wanted);
  // The view of a block that goes stays what it was.
  ASSERT_OK_AND_ASSIGN(const Value view,
                       database_->View(Space::kChunks, ChunkKey(2, 3)));
  const std::set<std::string> dead = {ChunkKey(2, 3), ChunkKey(3, 1)};
  int told = 0;
  ASSERT_OK(RewriteKeeping(*database_, Space::kChunks, {files[1], files[2]},
                           [&](std::string_view key, std::size_t bytes) {
                             if (IsGap(key)) return false;
                             ++told;
                             EXPECT_GT(bytes, kBytes);
                             return !dead.contains(std::string(key));
                           }));
  EXPECT_EQ(told, 2 * kRecords);
  for (const std::string& key : dead) wanted.erase(key);
  EXPECT_EQ(Keys(), wanted);
  EXPECT_EQ(view.view(), Payload(2, 3, kBytes));
  const std::vector<LiveFile> now = Files();
  ASSERT_EQ(now.size(), 3);
  EXPECT_EQ(now[1].first_key, ChunkKey(2, 0));
  EXPECT_EQ(now[1].last_key, ChunkKey(3, kRecords - 1));
  for (const LiveFile& file : now) EXPECT_OK(database_->CheckFile(file));
  EXPECT_THAT(database_->Read(Space::kChunks, ChunkKey(2, 3)),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const Value read,
                       database_->Read(Space::kChunks, ChunkKey(3, 2)));
  EXPECT_EQ(read.view(), Payload(3, 2, kBytes));
  ASSERT_OK_AND_ASSIGN(const Value mapped,
                       database_->View(Space::kChunks, ChunkKey(3, 2)));
  EXPECT_EQ(mapped.view(), Payload(3, 2, kBytes));
}

TEST_F(RewriteTest, NothingKeptLeavesNoFile) {
  ASSERT_OK(
      RewriteKeeping(*database_, Space::kChunks, {Files()[0]},
                     [](std::string_view, std::size_t) { return false; }));
  EXPECT_EQ(Files().size(), 3);
  EXPECT_EQ(Keys().size(), 3 * kRecords);
}

TEST_F(RewriteTest, IsThereAfterAnOpen) {
  ASSERT_OK(RewriteKeeping(
      *database_, Space::kChunks, Files(),
      [](std::string_view key, std::size_t) { return !IsGap(key); }));
  EXPECT_EQ(Files().size(), 1);
  database_.reset();
  ASSERT_OK_AND_ASSIGN(database_, Open());
  EXPECT_EQ(Files().size(), 1);
  EXPECT_EQ(Keys().size(), 4 * kRecords);
  EXPECT_EQ(database_->report().highest_version, 4);
  // And new segments go beside it.
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database_, 5, Space::kChunks, 2, kBytes));
  ASSERT_OK(database_->Adopt({segment}));
  EXPECT_EQ(Files().size(), 2);
}

TEST_F(RewriteTest, ADamagedFileIsLeftAndTheHandleLives) {
  const std::vector<LiveFile> files = Files();
  testing::FlipByte(files[2].path, files[2].bytes / 2);
  const auto keep = [](std::string_view key, std::size_t) {
    return !IsGap(key);
  };
  EXPECT_THAT(
      RewriteKeeping(*database_, Space::kChunks, {files[2], files[3]}, keep),
      StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(database_->health());
  EXPECT_EQ(Files().size(), 4);
  EXPECT_EQ(Put(*database_, "a", "1").outcome, Outcome::kCommitted);
  EXPECT_OK(
      RewriteKeeping(*database_, Space::kChunks, {files[0], files[1]}, keep));
  EXPECT_EQ(Files().size(), 3);
  // Also where it is the first block.
  testing::FlipByte(files[3].path, 40);
  EXPECT_THAT(RewriteKeeping(*database_, Space::kChunks, {files[3]}, keep),
              Not(IsOk()));
  EXPECT_OK(database_->health());
  EXPECT_EQ(Files().size(), 3);
}

TEST_F(RewriteTest, GivesValuesAnew) {
  const std::string changed = ChunkKey(2, 3);
  ASSERT_OK(database_->Rewrite(
      Space::kChunks, {Files()[1]},
      [&](std::string_view key, std::string_view value, std::string* other) {
        EXPECT_TRUE(other->empty());
        if (IsGap(key)) return Rewritten::kDropped;
        if (key != changed) return Rewritten::kAsItIs;
        *other = value.substr(0, 100);
        return Rewritten::kChanged;
      }));
  database_.reset();
  ASSERT_OK_AND_ASSIGN(database_, Open());
  for (int i = 0; i < kRecords; ++i) {
    const std::string key = ChunkKey(2, i);
    const std::string value = Payload(2, i, kBytes);
    const std::string expected = key == changed ? value.substr(0, 100) : value;
    ASSERT_OK_AND_ASSIGN(const Value read,
                         database_->Read(Space::kChunks, key));
    EXPECT_EQ(read.view(), expected);
    EXPECT_EQ(database_->ValueBytes(Space::kChunks, key), expected.size());
    std::string straight(expected.size(), '?');
    EXPECT_TRUE(
        database_->ReadUnchecked(Space::kChunks, key, expected.size(), 0,
                                 std::as_writable_bytes(std::span(straight))));
    EXPECT_EQ(straight, expected);
  }
}

TEST_F(RewriteTest, OtherCompactionsKeepEverything) {
  // Of this space there are none; a rewrite that failed leaves no scope behind.
  EXPECT_FALSE(RewriteScope::Active());
  testing::FlipByte(Files()[0].path, 5000);
  EXPECT_THAT(RewriteKeeping(*database_, Space::kChunks, {Files()[0]},
                             [](std::string_view, std::size_t) {
                               EXPECT_TRUE(RewriteScope::Active());
                               return true;
                             }),
              Not(IsOk()));
  EXPECT_FALSE(RewriteScope::Active());
  EXPECT_THAT(
      RewriteKeeping(*database_, Space::kSmall, {},
                     [](std::string_view, std::size_t) { return true; }),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ckptree::kv
