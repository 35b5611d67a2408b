// SPDX-License-Identifier: Apache-2.0

// An index made anew from rows and the tables of the old one.

#include "kv/rocks/index_rebuild.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "tests/kv/index_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(IndexRebuildTest, WhatIsTakenInCanBeReadDroppedAndRewritten) {
  // With gaps, and more files than fit a small number.
  for (std::uint64_t version = 1; version <= 300; ++version) {
    ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, version, 3, 700));
    if (version % 10 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, version, 50, 90));
    ASSERT_NO_FATAL_FAILURE(SaveSmall(version, 4, 3000));
  }
  // One that a rewrite made.
  auto files = database_->LiveFiles().value();
  std::erase_if(files, [](const LiveFile& file) {
    return file.space != Space::kChunks || file.first_key < Key(20, 0) ||
           file.first_key >= Key(30, 0);
  });
  ASSERT_THAT(files, SizeIs(10));
  const auto no_gaps = [](std::string_view key, std::size_t) {
    return !IsGap(key);
  };
  ASSERT_OK(RewriteKeeping(*database_, Space::kChunks, files, no_gaps));
  ASSERT_NO_FATAL_FAILURE(Close());
  // What an index has in addition to its tables may be anything.
  fs::remove(Db() + "/CURRENT");
  for (const auto& entry : fs::directory_iterator(Db())) {
    if (entry.path().filename().string().starts_with("MANIFEST")) {
      WriteAll(entry.path(), "nonsense");
    }
  }
  RebuildReport report;
  ASSERT_NO_FATAL_FAILURE(Swap(&report));
  EXPECT_THAT(report.losses, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(report.tables, 291 + 30);
  EXPECT_EQ(report.blocks, 120);
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));

  for (int round = 0; round < 2; ++round) {
    const std::uint64_t more = 1000 + static_cast<std::uint64_t>(round);
    ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, more, 5, 500));
    ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, more, 5, 50));
    ASSERT_NO_FATAL_FAILURE(SaveSmall(more, 5, 50));
    // The merged file, and one that was never touched.
    const std::uint64_t gone = 40 + static_cast<std::uint64_t>(round);
    std::uint64_t dropped = 0;
    ASSERT_OK(database_->Drop(Space::kChunks,
                              {{Key(gone, 0), Key(gone + 1, 0)}}, &dropped));
    EXPECT_EQ(dropped, 1);
    std::erase_if(models_[Space::kChunks], [&](const auto& block) {
      return block.first >= Key(gone, 0) && block.first < Key(gone + 1, 0);
    });
    auto now = database_->LiveFiles().value();
    std::erase_if(now, [&](const LiveFile& file) {
      return file.space != Space::kChunks || file.first_key < Key(10, 0) ||
             file.first_key >= Key(35, 0);
    });
    const std::string dead = Key(22, 1 + static_cast<std::uint32_t>(round));
    ASSERT_OK(RewriteKeeping(*database_, Space::kChunks, now,
                             [&](std::string_view key, std::size_t) {
                               return !IsGap(key) && key != dead;
                             }));
    models_[Space::kChunks].erase(dead);
    models_[Space::kRecords] = All(*database_, Space::kRecords);
    ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
    ASSERT_OK(database_->Close());
    ASSERT_OK_AND_ASSIGN(database_, Open());
    ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
  }
  // And an index that was made anew can be made anew.
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Swap(&report));
  EXPECT_THAT(report.losses, IsEmpty());
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
}

TEST_F(IndexRebuildTest, TheOldTablesStayAsTheyWere) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 3, 700));
  ASSERT_NO_FATAL_FAILURE(Close());
  std::map<std::string, std::string> before;
  for (const std::string& table : Tables()) before[table] = ReadAll(table);
  ASSERT_OK(Rebuild(Store() + "/db.new"));
  std::map<std::string, std::string> after;
  for (const std::string& table : Tables()) after[table] = ReadAll(table);
  EXPECT_EQ(before, after);
  EXPECT_THAT(Rebuild(Store() + "/db.new"),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(IndexRebuildTest, InputAndOutputOfACompactionAreTakenTogether) {
  for (std::uint64_t version = 1; version <= 6; ++version) {
    ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, version, 4, 700));
    ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, version, 4, 70));
  }
  const std::string kept = dir_ / "kept";
  fs::create_directory(kept);
  for (const std::string& table : Tables()) {
    fs::copy_file(table, kept + "/" + fs::path(table).filename().string());
  }
  auto files = database_->LiveFiles().value();
  std::erase_if(files, [&](const LiveFile& file) {
    return file.space != Space::kChunks || file.first_key >= Key(4, 0);
  });
  ASSERT_OK(RewriteKeeping(
      *database_, Space::kChunks, files,
      [](std::string_view key, std::size_t) { return !IsGap(key); }));
  ASSERT_NO_FATAL_FAILURE(Close());
  for (const auto& entry : fs::directory_iterator(kept)) {
    fs::copy_file(entry.path(), Db() + "/" + entry.path().filename().string(),
                  fs::copy_options::skip_existing);
  }
  // The same file twice, and one that a crash left empty.
  fs::copy_file(TableWith(models_[Space::kChunks][Key(6, 2)]),
                Db() + "/987654.sst");
  WriteAll(Db() + "/987655.sst", "");
  RebuildReport report;
  ASSERT_NO_FATAL_FAILURE(Swap(&report));
  EXPECT_THAT(report.losses, IsEmpty());
  EXPECT_THAT(report.notes, SizeIs(2));
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
  // Views of what was written anew are aligned as before.
  ASSERT_OK_AND_ASSIGN(const Value view,
                       database_->View(Space::kChunks, Key(2, 2)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.view().data()) % 64, 0);
}

TEST_F(IndexRebuildTest, BlocksAreAcceptedByTheirDigestsAlone) {
  ASSERT_NO_FATAL_FAILURE(SaveSmall(1, 5, 2000));
  ASSERT_NO_FATAL_FAILURE(Close());
  Model& small = models_[Space::kSmall];
  at_hand_[SmallBlockKey(1, 1)] = small[SmallBlockKey(1, 1)];
  at_hand_[SmallBlockKey(1, 2)] = "something else";
  // Of that name there was another block.
  small[SmallBlockKey(1, 3)] = Noise(99, 2003);
  RebuildReport report;
  ASSERT_NO_FATAL_FAILURE(Swap(&report));
  // It is taken along as it is: digests of its leaves decide.
  EXPECT_EQ(report.blocks, 4);
  EXPECT_THAT(report.losses, SizeIs(0));
  EXPECT_THAT(report.missing, SizeIs(0));
  small[SmallBlockKey(1, 3)] = Noise(1003, 2003);
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
}

}  // namespace
}  // namespace ckptree::kv
