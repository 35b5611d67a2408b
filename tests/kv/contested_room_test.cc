// SPDX-License-Identifier: Apache-2.0

// A disk whose room somebody else takes while the index is written to it.

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/testing/contested_disk.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using Taken = ContestedDisk::Taken;

class ContestedRoomTest : public KvTest {
 protected:
  ContestedRoomTest() { options_.file_system = MakeContestedDisk(&disk_); }

  // One whose reserve is there: its thread does not look what is free.
  void Start(std::unique_ptr<Database>* database) {
    ASSERT_OK(Create().status());
    ASSERT_OK_AND_ASSIGN(*database, Open());
    ASSERT_TRUE(std::filesystem::exists(Store() + "/journal/reserve"));
    Save(**database);
  }
  void Save(Database& database) {
    ++saves_;
    ASSERT_EQ(SmallSave(database, saves_).outcome, Outcome::kCommitted);
  }
  void ExpectAllSaves(const Database& database) {
    for (std::uint64_t version = 1; version <= saves_; ++version) {
      EXPECT_THAT(database.Get(Space::kRecords,
                               RecordKey("step" + std::to_string(version))),
                  IsOkAndHolds("row"));
      EXPECT_THAT(database.Get(Space::kSmall, VersionKey(version, "block")),
                  IsOkAndHolds(std::string(100, 's')));
    }
  }
  // In the next session, too, and without the journal's thread.
  void ExpectTheNextSaveWorks(std::unique_ptr<Database> database) {
    disk_.taken = Taken::kNever;
    disk_.full = false;
    Save(*database);
    EXPECT_OK(database->WriteRows());
    ExpectAllSaves(*database);
    EXPECT_OK(database->Close());
    database.reset();
    ASSERT_OK_AND_ASSIGN(database, Open());
    ExpectAllSaves(*database);
    Save(*database);
  }

  ContestedDisk disk_;
  std::uint64_t saves_ = 0;
};

TEST_F(ContestedRoomTest, RoomThatIsGoneBehindTheLookEndsNoHandle) {
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  disk_.taken = Taken::kBehindTheLook;
  EXPECT_THAT(database->WriteRows(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GT(disk_.times_taken, 0);
  EXPECT_GT(disk_.refusals, 0);
  EXPECT_OK(database->health());
  Save(*database);  // The journal has room.
  ExpectTheNextSaveWorks(std::move(database));
}

// Of which nothing that is asked what is free tells.
TEST_F(ContestedRoomTest, AQuotaThatIsReachedEndsNoHandle) {
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  disk_.by_quota = true;
  disk_.full = true;
  EXPECT_THAT(database->WriteRows(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GT(disk_.refusals, 0);
  EXPECT_OK(database->health());
  ExpectTheNextSaveWorks(std::move(database));
}

TEST_F(ContestedRoomTest, RoomThatIsHeldIsNotTaken) {
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  disk_.taken = Taken::kBehindTheHold;
  // The first of the two spaces is written, and the second finds no room.
  EXPECT_THAT(database->WriteRows(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(disk_.times_taken, 1);
  EXPECT_OK(database->health());
  disk_.full = false;
  EXPECT_OK(database->WriteRows());
  EXPECT_EQ(disk_.times_taken, 2);
  EXPECT_EQ(disk_.refusals, 0);
  ExpectTheNextSaveWorks(std::move(database));
}

TEST_F(ContestedRoomTest, WhatWasHeldAndNotNeededIsGivenBack) {
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  EXPECT_OK(database->WriteRows());
  EXPECT_TRUE(
      std::filesystem::is_empty(std::filesystem::path(Store()) / "staging"));
  std::uint64_t tables = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(Store() + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    ++tables;
    struct stat found = {};
    ASSERT_EQ(::stat(entry.path().c_str(), &found), 0);
    EXPECT_LE(found.st_blocks * 512, found.st_size + 4 * found.st_blksize)
        << entry.path();
  }
  EXPECT_GT(tables, 1U);
}

TEST_F(ContestedRoomTest, WhatACrashLeftIsGoneBehindTheNextOpen) {
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  ASSERT_OK(database->Close());
  database.reset();
  const std::string room = Store() + "/staging/flush-room.tmp";
  std::ofstream(room) << "left";
  ASSERT_OK_AND_ASSIGN(database, Open(Mode::kRead));
  database.reset();
  EXPECT_TRUE(std::filesystem::exists(room));  // It may be a writer's.
  ASSERT_OK_AND_ASSIGN(database, Open());
  EXPECT_FALSE(std::filesystem::exists(room));
  std::ofstream(room) << "held";
  EXPECT_THAT(database->ListStaging(), IsOkAndHolds(::testing::IsEmpty()));
  ExpectTheNextSaveWorks(std::move(database));
}

TEST_F(ContestedRoomTest, WhereNoneCanBeHeldNothingIsLost) {
  disk_.can_hold = false;
  std::unique_ptr<Database> database;
  ASSERT_NO_FATAL_FAILURE(Start(&database));
  EXPECT_OK(database->WriteRows());
  Save(*database);
  disk_.taken = Taken::kBehindTheLook;
  EXPECT_FALSE(database->WriteRows().ok());
  EXPECT_GT(disk_.refusals, 0);
  EXPECT_FALSE(database->health().ok());
  EXPECT_FALSE(database->Close().ok());
  database.reset();
  disk_.taken = Taken::kNever;
  disk_.full = false;
  ASSERT_OK_AND_ASSIGN(database, Open());
  ExpectAllSaves(*database);
  ExpectTheNextSaveWorks(std::move(database));
}

}  // namespace
}  // namespace ckptree::kv
