// What an open finds after damage, a crash, a copy: nothing is lost silently.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_chain.h"
#include "kv/commit_log.h"
#include "kv/database.h"
#include "kv/testing/forced_compaction.h"
#include "schema/spaces.h"
#include "tests/kv_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;
using schema::Space;

class RecoveryTest : public KvTest {
 protected:
  // A store with this many commits after the first one, closed.
  void MakeStore(int commits) {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (int i = 0; i < commits; ++i) {
      ASSERT_EQ(Put(*database, "k" + std::to_string(i), "v").outcome,
                Outcome::kCommitted);
    }
    ASSERT_OK(database->Close());
  }

  // The logs, oldest first.
  std::vector<std::string> Logs() const {
    std::vector<std::string> logs;
    for (const auto& entry : fs::directory_iterator(Store() + "/db")) {
      if (entry.path().extension() == ".log") logs.push_back(entry.path());
    }
    std::sort(logs.begin(), logs.end());
    return logs;
  }

  static void Cut(const std::string& path, std::uintmax_t size) {
    fs::resize_file(path, size);
  }

  // Three saves in `small`, then so much in `records` that it is flushed alone:
  // the saves' blocks are in the older log only.
  void MakeStoreWithSmallInTheOlderLog() {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (std::uint64_t version = 1; version <= 3; ++version) {
      ASSERT_EQ(SmallSave(*database, version).outcome, Outcome::kCommitted);
    }
    for (int i = 0; i < 18; ++i) {
      ASSERT_EQ(Put(*database, "big" + std::to_string(i % 2),
                    std::string(1 << 20, 'b'))
                    .outcome,
                Outcome::kCommitted);
    }
    ASSERT_OK(database->Close());
    ASSERT_THAT(Logs(), SizeIs(::testing::Ge(2)));
  }

  // kDataLoss, or a report from which the caller sees that a block is missing.
  void ExpectLossIsSeen() {
    bool seen = false;
    const auto opened = Database::Open(
        Store(), options_, Mode::kReadWrite,
        [&](const Database& database,
            const OpenReport& report) -> absl::Status {
          for (const CommitRecord& commit : report.recent) {
            if (!commit.small) continue;
            const auto block = database.Get(
                Space::kSmall, VersionKey(commit.version, "block"));
            if (!block.ok() || !block->has_value()) seen = true;
          }
          return absl::CancelledError("seen");
        });
    EXPECT_TRUE(seen || absl::IsDataLoss(opened.status())) << opened.status();
  }
};

TEST_F(RecoveryTest, ACutLogIsDataLossAndNamesTheCommits) {
  MakeStore(10);
  const std::string log = Logs().back();
  Cut(log, fs::file_size(log) / 2);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("to 11 were acknowledged")));
  // It stays as it is: no open repairs by forgetting.
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Open(Mode::kRead), StatusIs(absl::StatusCode::kDataLoss));
  options_.forensic = true;
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("k0")),
              IsOkAndHolds(Optional(std::string("v"))));
}

TEST_F(RecoveryTest, ADeletedLogIsDataLoss) {
  MakeStore(10);
  for (const std::string& log : Logs()) fs::remove(log);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("commits 1 to 11")));
}

TEST_F(RecoveryTest, EveryFlippedByteOfTheLogIsSeen) {
  MakeStore(3);
  const std::string log = Logs().back();
  const std::uint64_t size = fs::file_size(log);
  for (std::uint64_t at = 3; at < size; at += 37) {
    testing::FlipByte(log, at);
    EXPECT_THAT(Report(), StatusIs(absl::StatusCode::kDataLoss)) << at;
    testing::FlipByte(log, at);
  }
  EXPECT_THAT(Open(), IsOk());
}

TEST_F(RecoveryTest, SmallBlocksInALostOlderLogAreSeen) {
  for (const int damage : {0, 1, 2}) {
    MakeStoreWithSmallInTheOlderLog();
    const std::string log = Logs().front();
    if (damage == 0) Cut(log, fs::file_size(log) / 2);
    if (damage == 1) Cut(log, 0);
    if (damage == 2) fs::remove(log);
    ExpectLossIsSeen();
    fs::remove_all(Store());
  }
}

// The rows of many small saves stay in the log longer than their blocks: a log
// is lost, and more commits follow it than an open chains.
TEST_F(RecoveryTest, AnyLostLogIsSeenHoweverManyCommitsFollow) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (std::uint64_t version = 1; version <= 2700; ++version) {
      ASSERT_EQ(SmallSave(*database, version, 8000).outcome,
                Outcome::kCommitted);
    }
    ASSERT_OK(database->Close());
  }
  const std::vector<std::string> logs = Logs();
  ASSERT_THAT(logs, SizeIs(::testing::Ge(3)));
  EXPECT_THAT(Report(), IsOk());
  for (const std::string& log : logs) {
    if (fs::file_size(log) == 0) continue;
    fs::rename(log, dir_ / "away");
    EXPECT_THAT(Report(), StatusIs(absl::StatusCode::kDataLoss)) << log;
    fs::rename(dir_ / "away", log);
  }
  EXPECT_THAT(Report(), IsOk());
}

TEST_F(RecoveryTest, RecentReachesBackToWhatIsFlushed) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_EQ(SmallSave(*database, 1).ordinal, 2);
    ASSERT_EQ(SmallSave(*database, 2).ordinal, 3);
    ASSERT_OK(database->Flush());
    ASSERT_EQ(SmallSave(*database, 3).ordinal, 4);
    ASSERT_EQ(Put(*database, "a", "1").ordinal, 5);
  }
  {
    ASSERT_OK_AND_ASSIGN(const OpenReport report, Report());
    ASSERT_THAT(report.recent, SizeIs(2));
    EXPECT_EQ(report.recent[0].ordinal, 4);
    EXPECT_TRUE(report.recent[0].small);
    EXPECT_EQ(report.recent[0].version, 3);
    EXPECT_EQ(report.recent[1].ordinal, 5);
    EXPECT_EQ(report.highest_version, 3);
  }
  {
    // Recovery writes all of the log to files.
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_EQ(Put(*database, "b", "1").ordinal, 6);
  }
  ASSERT_OK_AND_ASSIGN(const OpenReport report, Report());
  EXPECT_THAT(report.recent, SizeIs(::testing::Le(1)));
}

TEST_F(RecoveryTest, WithoutHeadOnlyReadingIsAllowed) {
  MakeStore(2);
  fs::remove(Store() + "/HEAD");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("HEAD")));
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_TRUE(database->report().head_missing);
  EXPECT_THAT(database->report().warnings, Not(IsEmpty()));
  EXPECT_THAT(database->report().read_only_because, Not(IsOk()));
  EXPECT_EQ(database->report().ordinal, 3);
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(RecoveryTest, AnOldHeadIsAcceptedForOneCommitOnly) {
  MakeStore(2);
  fs::copy_file(Store() + "/HEAD", dir_ / "old");
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_EQ(Put(*database, "x", "1").ordinal, 4);
  }
  fs::copy_file(dir_ / "old", Store() + "/HEAD",
                fs::copy_options::overwrite_existing);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_TRUE(database->report().ahead_by_one);
    EXPECT_EQ(database->report().ordinal, 4);
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_FALSE(database->report().ahead_by_one);
    ASSERT_EQ(Put(*database, "y", "1").ordinal, 5);
  }
  fs::copy_file(dir_ / "old", Store() + "/HEAD",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_THAT(database->report().warnings, Contains(HasSubstr("old copy")));
}

TEST_F(RecoveryTest, AHeadOfAnotherStoreIsDataLoss) {
  MakeStore(2);
  fs::copy_file(Store() + "/HEAD", dir_ / "other");
  fs::remove_all(Store());
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (int i = 0; i < 2; ++i) Put(*database, "q", "other");
  }
  fs::copy_file(dir_ / "other", Store() + "/HEAD",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("not the one that HEAD")));
}

TEST_F(RecoveryTest, ACopyIsANewIncarnation) {
  MakeStore(1);
  fs::rename(Store(), dir_ / "original");
  fs::copy(dir_ / "original", Store(), fs::copy_options::recursive);
  {
    ASSERT_OK_AND_ASSIGN(const OpenReport found, Report());
    EXPECT_TRUE(found.copied);
    EXPECT_EQ(found.head.incarnation, 1);
  }
  EXPECT_OK(Open());
  ASSERT_OK_AND_ASSIGN(const OpenReport report, Report());
  EXPECT_FALSE(report.copied);
  EXPECT_EQ(report.head.incarnation, 2);
}

TEST_F(RecoveryTest, LinksAreRefused) {
  MakeStore(1);
  fs::create_symlink("/etc/hostname", Store() + "/db/000999.sst");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("link")));
  EXPECT_THAT(Open(Mode::kRead),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  fs::remove(Store() + "/db/000999.sst");
  fs::rename(Store() + "/HEAD", dir_ / "HEAD");
  fs::create_symlink(dir_ / "HEAD", Store() + "/HEAD");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RecoveryTest, TheCheckDecidesBeforeAnythingChanges) {
  MakeStore(2);
  const auto before = fs::last_write_time(Store() + "/HEAD");
  const std::vector<std::string> logs = Logs();
  EXPECT_THAT(Report(), IsOk());
  EXPECT_EQ(Logs(), logs);
  EXPECT_EQ(fs::last_write_time(Store() + "/HEAD"), before);
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
  // The ceiling remembers.
  EXPECT_EQ(Report()->highest_version, 12);
}

TEST_F(RecoveryTest, OldCommitRecordsAreTrimmedAndTheChainStaysWhole) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (std::uint64_t i = 0; i < kKeptCommits + 10; ++i) {
      ASSERT_EQ(Put(*database, "k", std::to_string(i)).outcome,
                Outcome::kCommitted);
    }
    EXPECT_THAT(database->Get(Space::kRecords, CommitRecordKey(1)),
                IsOkAndHolds(Not(std::nullopt)));
    ASSERT_OK(database->Flush());
    Put(*database, "k", "trims");
    EXPECT_THAT(database->Get(Space::kRecords, CommitRecordKey(1)),
                IsOkAndHolds(std::nullopt));
    EXPECT_THAT(database->Get(Space::kRecords, CommitRecordKey(100)),
                IsOkAndHolds(Not(std::nullopt)));
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_EQ(Put(*database, "k", "on").outcome, Outcome::kCommitted);
  }
  EXPECT_THAT(Report(), IsOk());
}

// RocksDB 7.8 drops every key of a database that only ever ingested when it
// compacts beside a snapshot; the store record keeps ours from being one.
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
