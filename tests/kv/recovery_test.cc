// SPDX-License-Identifier: Apache-2.0

// What an open finds after damage, a crash, a copy: nothing is lost silently,
// and one damage costs nothing.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/testing/forced_compaction.h"
#include "schema/spaces.h"
#include "tests/kv/recovery_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(RecoveryTest, WithoutDamageNothingIsSaid) {
  for (const bool closed : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_THAT(reader->report().warnings, IsEmpty());
    ExpectReadsAndWrites();
  }
}

TEST_F(RecoveryTest, AnyOneFileThatIsGoneCostsNoRow) {
  ForEachFile([&](const std::string& file) {
    // Its arrays are lost with it; the rows are not.
    if (HoldsPayload(file)) return;
    fs::remove(Store() + "/" + file);
    ExpectReadsAndWrites();
  });
}

TEST_F(RecoveryTest, AnyOneFileThatIsCutOrEmptiedCostsNoRow) {
  ForEachFile([&](const std::string& file) {
    if (HoldsPayload(file)) return;
    fs::resize_file(Store() + "/" + file,
                    fs::file_size(Store() + "/" + file) / 2);
    ExpectReadsAndWrites();
  });
}

// What is mended is whole from then on: what is committed next stands twice,
// and a kill costs none of it.
TEST_F(RecoveryTest, WhatIsCommittedAfterDamageOutlivesAKill) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  {
    // Blocks of arrays are in the newest record.
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 3));
    ASSERT_OK(database->Close());
  }
  const auto model = std::tuple(rows_, blocks_, commits_);
  fs::copy(Store(), dir_ / "kept", fs::copy_options::recursive);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(dir_ / "kept/journal")) {
    files.push_back(entry.path().filename());
  }
  for (const std::string& file : files) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(file + (cut ? " is cut" : " is gone"));
      std::tie(rows_, blocks_, commits_) = model;
      fs::remove_all(Store());
      fs::copy(dir_ / "kept", Store(), fs::copy_options::recursive);
      if (cut) {
        fs::resize_file(Store() + "/journal/" + file, 100);
      } else {
        fs::remove(Store() + "/journal/" + file);
      }
      fs::remove_all(dir_ / "live");
      {
        ASSERT_OK_AND_ASSIGN(const auto database, Open());
        // What the background would do, but nothing of it during the copy.
        ASSERT_OK(database->WriteRows());
        ASSERT_OK(database->WriteRows());
        ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 4));
        ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 5));
        std::error_code went;
        do {
          fs::remove_all(dir_ / "live");
          fs::copy(Store(), dir_ / "live", fs::copy_options::recursive, went);
        } while (went);
        ASSERT_OK(database->Close());
      }
      fs::remove_all(Store());
      fs::rename(dir_ / "live", Store());
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      ASSERT_NO_FATAL_FAILURE(ExpectAll(*database));
      EXPECT_THAT(database->report().warnings, IsEmpty());
    }
  }
}

TEST_F(RecoveryTest, FlippedBytesAnywhereCostNoRow) {
  ForEachFile([&](const std::string& file) {
    if (HoldsPayload(file)) return;
    const std::string path = Store() + "/" + file;
    const std::uint64_t size =
        std::min<std::uint64_t>(fs::file_size(path), std::uint64_t{12} << 10);
    // A few in each file; trial_judged_test does them all.
    const std::uint64_t stride = std::max<std::uint64_t>(1, size / 12);
    for (std::uint64_t at = stride / 2; at < size; at += stride) {
      fs::remove_all(Store());
      fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
      testing::FlipByte(path, at);
      SCOPED_TRACE(at);
      ExpectReadsAndWrites();
      if (HasFailure()) return;
    }
  });
}

// The blocks of a record stand in its first copy alone: where its header or
// rows are damaged there, the second copy says where, and digests which are
// whole.
TEST_F(RecoveryTest, DamageOfARecordCostsNoneOfItsBlocks) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  fs::rename(Store(), dir_ / "whole");
  const std::string name = "/journal/a-0000000002";
  std::ifstream in((dir_ / "whole") + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::size_t block = bytes.find(std::string(100, 's'));
  ASSERT_NE(block, bytes.npos);
  const std::size_t record = bytes.rfind("CKJR", block);
  ASSERT_NE(record, bytes.npos);
  for (std::size_t at = record; at < block; at += 7) {
    SCOPED_TRACE(at - record);
    fs::remove_all(Store());
    fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
    testing::FlipByte(Store() + name, at);
    ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
  }
}

TEST_F(RecoveryTest, TheNoteOfTheTipMayHaveChangedNamesWithAFile) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  const std::string journal = Store() + "/journal/";
  fs::rename(journal + "tip", journal + "x");
  fs::rename(journal + "a-0000000002", journal + "tip");
  fs::rename(journal + "x", journal + "a-0000000002");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, ANameAloneSaysNothingOfRows) {
  for (const bool closed : {true, false}) {
    for (const std::string content : {"", "no rows at all"}) {
      ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
      std::ofstream(Store() + "/journal/rows-00000000000000000099") << content;
      ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
    }
  }
}

TEST_F(RecoveryTest, ALockFileOfAnySizeIsOne) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::resize_file(Store() + "/LOCK", std::uintmax_t{2} << 20);
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, AnIndexOfAnotherTimeIsBroughtUpToDate) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::copy(Store() + "/db", dir_ / "old", fs::copy_options::recursive);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    for (int i = 0; i < 5; ++i) {
      PutOne(*database, "newer" + std::to_string(i), "n");
    }
  }
  fs::remove_all(Store() + "/db");
  fs::rename(dir_ / "old", Store() + "/db");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, ALostTipIsToldAndNotForgotten) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  // Both copies of the newest file.
  std::vector<std::string> newest;
  for (const std::string& file : Files()) {
    if (file.starts_with("journal/a-") || file.starts_with("journal/b-")) {
      if (file.ends_with("2")) newest.push_back(file);
    }
  }
  ASSERT_EQ(newest.size(), 2);
  for (const std::string& file : newest) fs::remove(Store() + "/" + file);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("acknowledged and are missing")));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  EXPECT_THAT(reader->report().lost, Not(IsOk()));
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("k0")),
              IsOkAndHolds(Not(std::nullopt)));
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(RecoveryTest, ManyCommitsGoIntoTheFileOfAllRows) {
  options_.journal_file_bytes = 1200 << 10;
  options_.journal_rows_bytes = 64 << 10;
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    commits_ = 1;
    for (int i = 0; i < 300; ++i) {
      PutOne(*database, "k" + std::to_string(i % 50),
             std::string(700, static_cast<char>('a' + i % 26)));
    }
    ASSERT_OK(database->WriteRows());
    PutOne(*database, "last", "1");
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 9, Space::kChunks, 4, 1000));
    ASSERT_OK(database->Adopt({segment}));
  }
  int rows = 0;
  int copies = 0;
  for (const std::string& file : Files()) {
    rows += file.starts_with("journal/rows-") ? 1 : 0;
    copies += file.starts_with("journal/a-") ? 1 : 0;
  }
  EXPECT_EQ(rows, 1);
  // 300 commits take seven files.
  EXPECT_LE(copies, 2);
  fs::remove_all(Store() + "/db/CURRENT");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, AnOpenThatCommitsNothingMakesNoFile) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const std::vector<std::string> before = Files();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
  }
  std::vector<std::string> journal;
  for (const std::string& file : Files()) {
    if (file.starts_with("journal/")) journal.push_back(file);
    EXPECT_FALSE(file.ends_with(".damaged")) << file;
  }
  for (const std::string& file : before) {
    if (file.starts_with("journal/")) std::erase(journal, file);
  }
  EXPECT_THAT(journal, IsEmpty());
  EXPECT_LT(Files().size(), before.size() + 4);
}

// Where two names cannot be exchanged, a crash between two renames leaves the
// new index alone.
TEST_F(RecoveryTest, AnIndexUnderItsNewNameIsRead) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::rename(Store() + "/db", Store() + "/db.new");
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    ASSERT_NO_FATAL_FAILURE(ExpectAll(*reader));
    EXPECT_OK(reader->FileBytes());
  }
  EXPECT_FALSE(fs::exists(Store() + "/db"));
  ASSERT_OK_AND_ASSIGN(const auto writer, Open());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(*writer));
  EXPECT_FALSE(fs::exists(Store() + "/db.new"));
}

TEST_F(RecoveryTest, LinksAreRefused) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::create_symlink("/etc/hostname", Store() + "/db/000999.sst");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("link")));
  EXPECT_THAT(Open(Mode::kRead),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  fs::remove(Store() + "/db/000999.sst");
  fs::rename(Store() + "/journal/tip", dir_ / "tip");
  fs::create_symlink(dir_ / "tip", Store() + "/journal/tip");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RecoveryTest, TheCheckDecidesBeforeAnythingChanges) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const std::vector<std::string> files = Files();
  EXPECT_THAT(Report(), IsOk());
  EXPECT_EQ(Files(), files);
}

TEST_F(RecoveryTest, ACopyIsANewIncarnation) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::rename(Store(), dir_ / "original");
  fs::copy(dir_ / "original", Store(), fs::copy_options::recursive);
  {
    ASSERT_OK_AND_ASSIGN(const OpenReport found, Report());
    EXPECT_TRUE(found.copied);
    EXPECT_EQ(found.incarnation, 2);
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_EQ(Put(*database, "here", "v").outcome, Outcome::kCommitted);
  }
  ASSERT_OK_AND_ASSIGN(const OpenReport report, Report());
  EXPECT_FALSE(report.copied);
  EXPECT_EQ(report.incarnation, 2);
}

TEST_F(RecoveryTest, HighestVersionComesFromEverywhere) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_EQ(SmallSave(*database, 4).outcome, Outcome::kCommitted);
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 9, Space::kChunks, 2, 100));
    ASSERT_OK(database->Adopt({segment}));
  }
  EXPECT_EQ(Report()->highest_version, 9);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_OK(database->MakeStaging("v12-x"));
    EXPECT_THAT(database->MakeStaging("../x"),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(Report()->highest_version, 12);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_THAT(database->ListStaging(),
                IsOkAndHolds(::testing::ElementsAre("v12-x")));
    ASSERT_OK(database->RemoveStaging("v12-x"));
    EXPECT_THAT(database->ListStaging(), IsOkAndHolds(IsEmpty()));
  }
}

// RocksDB 7.8 drops every key of a database that only ever ingested when it
// compacts beside a snapshot; creation writes rows to a file, which keeps ours
// from being one.
TEST_F(RecoveryTest, AdoptedKeysSurviveACompactionBesideASnapshot) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 1, Space::kChunks, 10, 100));
    ASSERT_OK(database->Adopt({segment}));
  }
  EXPECT_THAT(CompactBesideSnapshot(Store() + "/db", Space::kChunks),
              IsOkAndHolds(10 + 9));  // A gap before each but the first.
}

}  // namespace
}  // namespace ckptree::kv
