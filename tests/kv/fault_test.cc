// SPDX-License-Identifier: Apache-2.0

// Every write, sync, rename and removal of a creation and of a commit fails in
// its turn: once, and from then on.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/testing/failing_disk.h"
#include "schema/spaces.h"
#include "tests/fault/scale.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Not;

class FaultTest : public KvTest {
 protected:
  FaultTest() { failing_.file_system = MakeFailingDisk(&plan_); }
  absl::StatusOr<std::unique_ptr<Database>> OpenFailing() {
    return Database::Open(Store(), failing_, Mode::kReadWrite, NoCheck);
  }

  FailurePlan plan_;
  Options failing_;
};

TEST_F(FaultTest, AnInterruptedCreationIsSimplyRepeated) {
  std::int64_t fired = 0;
  for (const bool sticky : {true, false}) {
    for (std::int64_t at = 0;; at += testing::TrialStride()) {
      SCOPED_TRACE(at);
      std::filesystem::remove_all(Store());
      plan_.Arm(at, sticky);
      const bool acknowledged = Database::Create(Store(), failing_, kTestUuid,
                                                 kTestStoreKey, "first", {})
                                    .ok();
      const bool hit = plan_.failed() > 0;
      plan_.Arm(-1, false);
      fired += hit;
      if (acknowledged) {
        EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
      } else if (!std::filesystem::exists(Store() + "/CREATING") &&
                 std::filesystem::exists(Store() + "/journal/tip")) {
        // Only making the removal of the mark durable failed.
        EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
      } else {
        EXPECT_THAT(Open(), ::testing::AnyOf(
                                StatusIs(absl::StatusCode::kFailedPrecondition),
                                StatusIs(absl::StatusCode::kNotFound)));
        EXPECT_THAT(Create(), IsOk());
      }
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      EXPECT_EQ(Put(*database, "a", "1").ordinal, 2);
      if (!hit) break;
    }
  }
  EXPECT_GT(fired, testing::Scaled(60));
}

// A commit whose record failed is unknown, and the handle dead; one that failed
// before its record was written never was; one whose second copy failed counts.
TEST_F(FaultTest, AFailedCommitIsUnknownAndTheHandleDeadOrItNeverWas) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  std::uint64_t committed = 1;
  std::map<Outcome, int> outcomes;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    plan_.Arm(-1, false);
    const std::string value = "v" + std::to_string(at);
    CommitResult result;
    bool hit = false;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
      plan_.Arm(at, /*from_then_on=*/false);
      result = Put(*database, "a", value);
      hit = plan_.failed() > 0;
      plan_.Arm(-1, false);
      if (hit) ++outcomes[result.outcome];
      if (result.outcome == Outcome::kUnknown) {
        EXPECT_THAT(database->health(), Not(IsOk()));
        // It does not come back to life, and still reads.
        EXPECT_EQ(Put(*database, "b", "1").outcome, Outcome::kFailed);
        EXPECT_THAT(database->Secure(), Not(IsOk()));
      } else if (!hit) {
        EXPECT_OK(database->health());
        EXPECT_EQ(result.outcome, Outcome::kCommitted);
      }
      EXPECT_OK(database->Get(Space::kRecords, kTestStoreKey));
    }
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    const std::uint64_t ordinal = database->report().ordinal;
    switch (result.outcome) {
      case Outcome::kCommitted:
        EXPECT_EQ(ordinal, committed + 1);
        break;
      case Outcome::kUnknown:
        EXPECT_TRUE(ordinal == committed || ordinal == committed + 1);
        break;
      default:
        EXPECT_EQ(ordinal, committed);
        break;
    }
    // The commit is there as a whole or not at all.
    ASSERT_OK_AND_ASSIGN(const std::optional<std::string> found,
                         database->Get(Space::kRecords, RecordKey("a")));
    EXPECT_EQ(found == value, ordinal == committed + 1);
    committed = ordinal;
    if (!hit) break;
  }
  EXPECT_GE(outcomes[Outcome::kFailed], 4);   // A file of the journal is made.
  EXPECT_GE(outcomes[Outcome::kUnknown], 2);  // Write, sync.
  EXPECT_GE(outcomes[Outcome::kCommitted], 1);  // The second copy.
}

// As above, where memory runs out instead. The close that follows writes
// nothing over what may be there: with its row stands its block.
TEST_F(FaultTest, WhatIsThrownInACommitLosesNothing) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  std::uint64_t committed = 1;
  int there = 0;
  int unknown = 0;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    const std::string value = "v" + std::to_string(at);
    const std::string block(6000, static_cast<char>('a' + at % 26));
    // Of array bytes: they stand in the first copy alone.
    const std::string key = VersionKey(static_cast<std::uint64_t>(at) + 1,
                                       std::string("\0\0\2\0\0\0\1", 7));
    bool hit = false;
    Outcome outcome = Outcome::kFailed;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
      CommitRequest request = PutRequest("a", value);
      request.batch.Put(Space::kSmall, key, block);
      plan_.Throw(true);
      plan_.Arm(at, /*from_then_on=*/false);
      outcome = database->Commit(std::move(request)).outcome;
      unknown += outcome == Outcome::kUnknown ? 1 : 0;
      hit = plan_.failed() > 0;
      plan_.Arm(-1, false);
      plan_.Throw(false);
      if (!hit) {
        EXPECT_EQ(outcome, Outcome::kCommitted);
      }
      // Dead, or what was thrown came before the record.
      const CommitResult next = Put(*database, "b", value);
      EXPECT_EQ(next.outcome == Outcome::kCommitted, database->health().ok());
    }
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_OK(database->report().lost);
    ASSERT_OK_AND_ASSIGN(const std::optional<std::string> row,
                         database->Get(Space::kRecords, RecordKey("a")));
    ASSERT_OK_AND_ASSIGN(const std::optional<std::string> kept,
                         database->Get(Space::kSmall, key));
    EXPECT_EQ(row == value, kept == block);
    EXPECT_TRUE(!kept.has_value() || kept == block);
    if (outcome == Outcome::kCommitted) {
      EXPECT_EQ(row, value);
    }
    there += hit && row == value ? 1 : 0;
    EXPECT_GE(database->report().ordinal, committed);
    committed = database->report().ordinal;
    if (!hit) break;
  }
  EXPECT_GE(there, 2);        // From the sync of the first copy on.
  EXPECT_GT(unknown, there);  // And before the record.
}

// What was acknowledged without its second copy stands in two places all the
// same: after a kill, one of them damaged, it is there.
TEST_F(FaultTest, ACommitWithoutASecondCopyIsInTheIndex) {
  namespace fs = std::filesystem;
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
  }
  int alone = 0;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    const std::string value = "value-" + std::to_string(at) + "-of-a-commit";
    const std::string killed = dir_ / "killed";
    fs::remove_all(killed);
    CommitResult result;
    bool hit = false;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
      plan_.Arm(at, /*from_then_on=*/false);
      result = Put(*database, "a", value);
      hit = plan_.failed() > 0;
      plan_.Arm(-1, false);
      // The thread of the journal makes and removes files beside it.
      std::error_code error;
      do {
        fs::remove_all(killed);
        error.clear();
        fs::copy(Store(), killed, fs::copy_options::recursive, error);
      } while (error == std::errc::no_such_file_or_directory);
      ASSERT_FALSE(error) << error.message();
    }
    if (hit && result.outcome == Outcome::kCommitted) {
      int damaged = 0;
      for (const auto& entry : fs::directory_iterator(killed + "/journal")) {
        const std::string name = entry.path().filename();
        std::ifstream in(entry.path(), std::ios::binary);
        std::string bytes((std::istreambuf_iterator<char>(in)), {});
        const std::size_t place = bytes.find(value);
        if (place == bytes.npos || !name.starts_with("a-")) continue;
        bytes[place] ^= 1;
        std::ofstream(entry.path(), std::ios::binary) << bytes;
        ++damaged;
      }
      EXPECT_EQ(damaged, 1);
      const auto opened =
          Database::Open(killed, options_, Mode::kRead, NoCheck);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_OK((*opened)->report().lost);
      EXPECT_THAT((*opened)->Get(Space::kRecords, RecordKey("a")),
                  testing::IsOkAndHolds(std::optional<std::string>(value)));
      ++alone;
    }
    if (!hit) break;
  }
  EXPECT_GE(alone, 1);
}

TEST_F(FaultTest, AFailedManifestWriteKeepsEveryFileThatItMayName) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  std::int64_t fired = 0;
  std::uint64_t version = 0;
  for (const bool sticky : {false, true}) {
    for (std::int64_t at = 0;; at += testing::TrialStride()) {
      SCOPED_TRACE(at);
      plan_.Arm(-1, false);
      ++version;
      bool hit = false;
      {
        ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
        ASSERT_OK_AND_ASSIGN(const StagedSegment chunks,
                             Stage(*database, version, Space::kChunks, 3, 100));
        ASSERT_OK_AND_ASSIGN(const StagedSegment leaves,
                             Stage(*database, version, Space::kLeaves, 3, 100));
        plan_.Arm(at, sticky);
        absl::Status status = database->Adopt({chunks, leaves});
        if (status.ok()) {
          const CommitResult result = SmallSave(*database, version);
          status = result.status;
        }
        if (status.ok()) status = database->Secure();
        hit = plan_.failed() > 0;
      }
      plan_.Arm(-1, false);
      fired += hit;
      std::filesystem::remove_all(Store() + "/staging");
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                           database->LiveFiles());
      for (const LiveFile& file : files) EXPECT_TRUE(file.whole) << file.path;
      EXPECT_EQ(Put(*database, "on", "1").outcome, Outcome::kCommitted);
      if (!hit) break;
    }
  }
  EXPECT_GT(fired, testing::Scaled(30));
}

TEST_F(FaultTest, AWriteBackThatFailsIsToldByTheFlush) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
    plan_.FailWriteBacks(true);
    EXPECT_EQ(SmallSave(*database, 1, 6 << 20).outcome, Outcome::kCommitted);
    EXPECT_THAT(database->WriteRows(), Not(IsOk()));
    EXPECT_GT(plan_.failed_write_backs(), 0);
    EXPECT_THAT(database->health(), Not(IsOk()));
  }
  plan_.FailWriteBacks(false);
  // What was acknowledged is in the journal.
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  ASSERT_OK_AND_ASSIGN(const auto block,
                       database->Get(Space::kSmall, VersionKey(1, "block")));
  EXPECT_EQ(block, std::string(6 << 20, 's'));
}

}  // namespace
}  // namespace ckptree::kv
