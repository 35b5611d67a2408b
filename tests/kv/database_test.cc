// SPDX-License-Identifier: Apache-2.0

// Creating, opening, committing, adopting, reading, dropping.

#include "kv/database.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/store_lock.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

class DatabaseTest : public KvTest {};

TEST_F(DatabaseTest, CreatesCommitsAndReopens) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    EXPECT_EQ(database->report().ordinal, 1);
    EXPECT_THAT(database->Get(Space::kRecords, kTestStoreKey),
                IsOkAndHolds(Optional(std::string("the store"))));
    const CommitResult result = Put(*database, "a", "1");
    EXPECT_EQ(result.outcome, Outcome::kCommitted) << result.status;
    EXPECT_EQ(result.ordinal, 2);
    EXPECT_OK(database->Close());
  }
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  EXPECT_EQ(database->report().ordinal, 2);
  EXPECT_EQ(database->report().ordinal, 2);
  EXPECT_FALSE(database->report().copied);
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("a")),
              IsOkAndHolds(Optional(std::string("1"))));
  EXPECT_EQ(Put(*database, "b", "2").ordinal, 3);
}

// As a command makes them: each open reads the beginning of every file.
TEST_F(DatabaseTest, ManyShortSessionsLeaveFewFiles) {
  constexpr int kSessions = 150;
  constexpr int kMost = 64;
  ASSERT_OK(Create().value()->Close());
  int most = 0;
  for (int i = 0; i < kSessions; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_EQ(Put(*database, std::to_string(i), "x").outcome,
              Outcome::kCommitted);
    ASSERT_OK(database->Close());
    int files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(Store() + "/journal")) {
      files += entry.path().filename().string().starts_with("a-") ? 1 : 0;
    }
    most = std::max(most, files);
  }
  EXPECT_EQ(most, kMost);
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_THAT(database->report().warnings, IsEmpty());
  for (int i = 0; i < kSessions; ++i) {
    EXPECT_THAT(database->Get(Space::kRecords, RecordKey(std::to_string(i))),
                IsOkAndHolds(Optional(std::string("x"))));
  }
}

TEST_F(DatabaseTest, AdoptsReadsViewsAndDrops) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment chunks,
                       Stage(*database, 7, Space::kChunks, 5, 10000));
  ASSERT_OK_AND_ASSIGN(const StagedSegment leaves,
                       Stage(*database, 7, Space::kLeaves, 5, 100));
  ASSERT_OK(database->Adopt({chunks, leaves}));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database->LiveFiles());
  ASSERT_EQ(files.size(), 2);
  for (const LiveFile& file : files) {
    EXPECT_TRUE(file.whole);
    EXPECT_EQ(file.first_key, ChunkKey(7, 0));
    EXPECT_EQ(file.last_key, ChunkKey(7, 4));
    EXPECT_OK(database->CheckFile(file));
  }
  {
    ASSERT_OK_AND_ASSIGN(const Value read,
                         database->Read(Space::kChunks, ChunkKey(7, 3)));
    EXPECT_EQ(read.view(), Payload(7, 3, 10000));
    ASSERT_OK_AND_ASSIGN(const Value view,
                         database->View(Space::kChunks, ChunkKey(7, 3)));
    EXPECT_EQ(view.view(), Payload(7, 3, 10000));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.view().data()) % 64, 0);
    ASSERT_OK_AND_ASSIGN(const Value leaf,
                         database->View(Space::kLeaves, ChunkKey(7, 2)));
    EXPECT_EQ(leaf.view(), Payload(7, 2, 100));
    EXPECT_THAT(database->View(Space::kChunks, ChunkKey(7, 9)),
                StatusIs(absl::StatusCode::kNotFound));

    for (const Space space : {Space::kChunks, Space::kLeaves}) {
      ASSERT_OK(
          database->Drop(space, {{VersionKey(7, ""), VersionKey(8, "")}}));
    }
    EXPECT_THAT(database->LiveFiles(), IsOkAndHolds(IsEmpty()));
    EXPECT_THAT(database->Read(Space::kChunks, ChunkKey(7, 3)),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(database->View(Space::kChunks, ChunkKey(7, 3)),
                StatusIs(absl::StatusCode::kNotFound));
    // What was read stays.
    EXPECT_EQ(view.view(), Payload(7, 3, 10000));
    EXPECT_EQ(read.view(), Payload(7, 3, 10000));
  }
  EXPECT_OK(database->Close());
}

TEST_F(DatabaseTest, PreconditionsDecideAndNothingIsWrittenOtherwise) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  CommitRequest absent = PutRequest("a", "1");
  absent.preconditions.push_back(
      {Space::kRecords, RecordKey("a"), std::nullopt});
  EXPECT_EQ(database->Commit(absent).outcome, Outcome::kCommitted);
  const CommitResult conflict = database->Commit(absent);
  EXPECT_EQ(conflict.outcome, Outcome::kConflict);
  EXPECT_THAT(conflict.status, Not(IsOk()));

  CommitRequest expects = PutRequest("a", "2");
  expects.before.emplace_back().Put(Space::kRecords, RecordKey("b"), "side");
  expects.preconditions.push_back({Space::kRecords, RecordKey("a"), "0"});
  EXPECT_EQ(database->Commit(expects).outcome, Outcome::kConflict);
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds(std::nullopt));
  expects.preconditions.back().expected = "1";
  EXPECT_EQ(database->Commit(expects).ordinal, 4);  // One ahead of it.
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds(Optional(std::string("side"))));
}

TEST_F(DatabaseTest, RefusesWhatABatchMustNotHold) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  CommitRequest chunk;
  chunk.batch.Put(Space::kChunks, "a", "1");
  CommitResult result = database->Commit(chunk);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kInvalidArgument));
  CommitRequest forged;
  forged.batch.Put(Space::kRecords,
                   "\xff"
                   "mine",
                   "");
  result = database->Commit(forged);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_OK(database->health());
  EXPECT_EQ(database->Commit({}).outcome, Outcome::kCommitted);
}

TEST_F(DatabaseTest, TheLastOperationOnAKeyWinsAndDeletesDelete) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  CommitRequest request;
  request.batch.Put(Space::kRecords, RecordKey("a"), "1");
  request.batch.Delete(Space::kRecords, RecordKey("a"));
  request.batch.Put(Space::kRecords, RecordKey("b"), "1");
  request.batch.Put(Space::kRecords, RecordKey("b"), "2");
  ASSERT_EQ(database->Commit(request).outcome, Outcome::kCommitted);
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("a")),
              IsOkAndHolds(std::nullopt));
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds(Optional(std::string("2"))));
}

TEST_F(DatabaseTest, ScansARangeAsOfItsCreation) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  for (const char* name : {"a", "b", "c", "d"}) Put(*database, name, name);
  {
    ASSERT_OK_AND_ASSIGN(
        Iterator scan,
        database->Scan(Space::kRecords, RecordKey("b"), RecordKey("d")));
    Put(*database, "bb", "later");
    std::vector<std::string> values;
    for (; scan.Valid(); scan.Next()) values.emplace_back(scan.value());
    EXPECT_THAT(values, ElementsAre("b", "c"));
    EXPECT_OK(scan.status());
    scan.Seek(RecordKey("a"));  // Before the range: its first key.
    ASSERT_TRUE(scan.Valid());
    EXPECT_EQ(scan.key(), RecordKey("b"));
    scan.Seek(RecordKey("e"));
    EXPECT_FALSE(scan.Valid());
  }
  EXPECT_OK(database->Close());
  EXPECT_THAT(database->Scan(Space::kRecords, "", ""),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(database->Close(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Put(*database, "e", "1").outcome, Outcome::kFailed);
}

TEST_F(DatabaseTest, AnOverlappingSegmentIsRefusedAndStaysWhereItIs) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment first,
                       Stage(*database, 3, Space::kChunks, 5, 100));
  ASSERT_OK(database->Adopt({first}));
  ASSERT_OK_AND_ASSIGN(const StagedSegment again,
                       Stage(*database, 3, Space::kChunks, 5, 100));
  ASSERT_OK_AND_ASSIGN(const StagedSegment other,
                       Stage(*database, 4, Space::kLeaves, 5, 100));
  EXPECT_THAT(database->Adopt({other, again}), Not(IsOk()));
  EXPECT_TRUE(std::filesystem::exists(again.path));
  EXPECT_TRUE(std::filesystem::exists(other.path));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database->LiveFiles());
  EXPECT_EQ(files.size(), 1);
  EXPECT_OK(database->health());
}

TEST_F(DatabaseTest, IsFencedWhenTheStoreIsNoLongerOurs) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  std::filesystem::remove(Store() + "/LOCK");
  const CommitResult result = Put(*database, "a", "1");
  EXPECT_EQ(result.outcome, Outcome::kFenced);
  EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("LOCK")));
  EXPECT_THAT(database->Secure(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DatabaseTest, TheLockLastsAsLongAsWhatWasRead) {
  ASSERT_OK_AND_ASSIGN(auto database, Create());
  auto value = database->Read(Space::kRecords, kTestStoreKey);
  ASSERT_OK(value);
  database.reset();
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(value->view(), "the store");
  value = absl::CancelledError("gone");
  EXPECT_OK(Open());
}

TEST_F(DatabaseTest, CheckFileFindsOneFlippedBit) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database, 3, Space::kChunks, 5, 100000));
  ASSERT_OK(database->Adopt({segment}));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database->LiveFiles());
  ASSERT_EQ(files.size(), 1);
  ASSERT_OK(database->CheckFile(files[0]));
  {
    std::fstream file(files[0].path,
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(250000);
    file.put('\1');
  }
  EXPECT_THAT(database->CheckFile(files[0]),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(files[0].path)));
  EXPECT_THAT(database->View(Space::kChunks, ChunkKey(3, 2)),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(database->View(Space::kChunks, ChunkKey(3, 0)));
  // Cut short: named, and never mapped.
  std::filesystem::resize_file(files[0].path, 200000);
  EXPECT_THAT(database->CheckFile(files[0]),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(
      database->LiveFiles(),
      IsOkAndHolds(ElementsAre(::testing::Field(&LiveFile::whole, false))));
}

// The last byte of the properties block ends RocksDB 7.8.3 where nobody looks
// at it first.
TEST_F(DatabaseTest, EveryTopBitAtTheEndOfATableIsSurvived) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database, 3, Space::kChunks, 2, 1000));
  ASSERT_OK(database->Adopt({segment}));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database->LiveFiles());
  ASSERT_EQ(files.size(), 1);
  const std::uint64_t size = std::filesystem::file_size(files[0].path);
  int named = 0;
  for (std::uint64_t at = size - 1500; at < size; ++at) {
    testing::FlipByte(files[0].path, at, 0x80);
    const absl::Status status = database->CheckFile(files[0]);
    if (!status.ok()) {
      ++named;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                   HasSubstr(files[0].path)));
    }
    testing::FlipByte(files[0].path, at, 0x80);
  }
  // All but the zeros that fill the footer.
  EXPECT_GT(named, 1400);
  EXPECT_OK(database->CheckFile(files[0]));
}

TEST_F(DatabaseTest, RefusesPlacesThatAreNotForIt) {
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Open(Mode::kRead), StatusIs(absl::StatusCode::kNotFound));
  std::filesystem::create_directory(Store());
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(std::filesystem::is_empty(Store()));
  for (const char* step : {"100", "step_100", "checkpoint-7"}) {
    std::filesystem::create_directory(Store() + "/" + step);
    EXPECT_THAT(Create(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr(step),
                                          HasSubstr(Store() + "/ckptree"))));
    EXPECT_FALSE(std::filesystem::exists(Store() + "/LOCK"));
    std::filesystem::remove(Store() + "/" + step);
  }
  std::filesystem::create_directory(Store() + "/staging");
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("parts of a store")));
  std::filesystem::remove(Store() + "/staging");
  // An unfinished creation is begun anew; what others call so is theirs.
  std::filesystem::create_directory(Store() + "/db");
  std::ofstream(Store() + "/db/mine") << "mine";
  std::ofstream(Store() + "/CREATING") << "poems\n";
  std::ofstream(Store() + "/notes.txt") << "mine";
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("'CREATING', which no store made")));
  EXPECT_TRUE(std::filesystem::exists(Store() + "/db/mine"));
  std::ofstream(Store() + "/CREATING") << "not fin";
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("'db', which no store made")));
  EXPECT_TRUE(std::filesystem::exists(Store() + "/db/mine"));
  std::filesystem::rename(Store() + "/db/mine", Store() + "/db/000001.log");
  {
    ASSERT_OK_AND_ASSIGN(const auto creator, StoreLock::Acquire(Store(), 0));
    EXPECT_THAT(Open(Mode::kRead), StatusIs(absl::StatusCode::kNotFound,
                                            HasSubstr("is creating it")));
  }
  EXPECT_THAT(Open(Mode::kRead), StatusIs(absl::StatusCode::kNotFound,
                                          HasSubstr("create it again")));
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_OK(Open());
}

// Nor is a store there: it was called one that has lost its journal, which
// `repair` would make anew.
TEST_F(DatabaseTest, FoldersOfOthersAreNoStore) {
  namespace fs = std::filesystem;
  fs::create_directory(Store());
  for (const char* folder : {"db", "journal"}) {
    const fs::path path = fs::path(Store()) / folder;
    fs::create_directory(path);
    for (const bool empty : {true, false}) {
      if (!empty) std::ofstream(path / "runs.sqlite") << "mine";
      for (const Mode mode : {Mode::kReadWrite, Mode::kRead}) {
        EXPECT_THAT(Open(mode), StatusIs(absl::StatusCode::kNotFound));
      }
      EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(std::string("'") + folder +
                                               "', which no store made")));
      EXPECT_EQ(fs::is_empty(path), empty);
    }
    fs::remove_all(path);
  }
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  fs::remove_all(fs::path(Store()) / "journal");
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("lost its journal")));
}

// What would be written over or removed, and what has a name of ours and is of
// another kind, is named before anything is made.
TEST_F(DatabaseTest, IsNotMadeWhereOthersHaveNamesOfIt) {
  namespace fs = std::filesystem;
  struct Case {
    const char* name;
    bool folder;
    bool beside;  // Alone it may be ours.
  };
  const auto refused = [this](const Case& one) {
    EXPECT_THAT(Create(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr(one.name),
                                          HasSubstr("which no store made"))));
  };
  for (const Case& one : {Case{"db", false, false},
                          {"journal", false, false},
                          {"staging", false, false},
                          {"store.fetching", false, false},
                          {"leases", false, false},
                          {"LOCK", true, false},
                          {"CREATING", true, false},
                          {"HEAD", true, false},
                          {"remote", true, false},
                          {"LOCK", false, false},
                          {"remote", false, false},
                          {"remote.tmp", false, true},
                          {"CREATING", false, true},
                          {"store.fetching", true, false}}) {
    SCOPED_TRACE(one.name);
    fs::remove_all(Store());
    fs::create_directory(Store());
    if (one.beside) std::ofstream(Store() + "/config.yaml") << "mine";
    const std::string path = Store() + "/" + one.name;
    if (one.folder) {
      fs::create_directory(path);
      std::ofstream(path + "/a.txt") << "mine";
    } else {
      std::ofstream(path) << "mine";
    }
    refused(one);
    EXPECT_EQ(fs::file_size(one.folder ? path + "/a.txt" : path), 4u);
    std::size_t there = 0;
    for (const auto& entry : fs::directory_iterator(Store())) {
      there += entry.path().empty() ? 0 : 1;
    }
    EXPECT_EQ(there, one.beside ? 2u : 1u);
  }
  // As a creation and a fetch that were cut leave them.
  fs::remove_all(Store());
  fs::create_directories(Store() + "/store.fetching/db");
  std::ofstream(Store() + "/config.yaml") << "mine";
  std::ofstream(Store() + "/LOCK") << "pid 7\nhost a\n";
  std::ofstream(Store() + "/remote") << "ckptree remote 1\nsomething";
  std::ofstream(Store() + "/remote.tmp") << std::string(9, 0);
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  EXPECT_OK(Open());
  EXPECT_FALSE(fs::exists(Store() + "/store.fetching"));
  EXPECT_FALSE(fs::exists(Store() + "/remote"));
  EXPECT_EQ(fs::file_size(Store() + "/config.yaml"), 4u);
}

// A repository of git has a file of that name, and would lose it with a store.
TEST_F(DatabaseTest, ARepositoryOfGitIsNoStore) {
  std::filesystem::create_directories(Store() + "/objects");
  std::ofstream(Store() + "/HEAD") << "ref: refs/heads/main\n";
  for (const absl::Status& status :
       {Open().status(), Open(Mode::kRead).status(), Create().status()}) {
    EXPECT_THAT(status,
                ::testing::AnyOf(StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("a file HEAD")),
                                 StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("HEAD"))));
  }
  EXPECT_FALSE(std::filesystem::exists(Store() + "/journal"));
  EXPECT_EQ(std::filesystem::file_size(Store() + "/HEAD"), 21u);
}

// The folder of a run has more than its checkpoints.
TEST_F(DatabaseTest, StandsBesideWhatIsOfOthers) {
  namespace fs = std::filesystem;
  fs::create_directories(Store() + "/logs/run1");
  std::ofstream(Store() + "/events.out.tfevents.1700000000.host.1.0") << "mine";
  std::ofstream(Store() + "/config.yaml") << "mine";
  fs::create_symlink("/nowhere", Store() + "/latest_run");
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  EXPECT_OK(Open());
  EXPECT_OK(Open(Mode::kRead));
  EXPECT_TRUE(fs::is_directory(Store() + "/logs/run1"));
  EXPECT_EQ(fs::file_size(Store() + "/config.yaml"), 4u);
  EXPECT_EQ(fs::read_symlink(Store() + "/latest_run"), "/nowhere");
  // Under a name of ours nothing is followed.
  fs::create_symlink("/nowhere", Store() + "/requests");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("requests is a link")));
}

TEST_F(DatabaseTest, FilesHaveNoMorePermissionsThanAskedFor) {
  options_.permissions = 0600;
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK(database->MakeStaging("v1-a"));
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database, 3, Space::kChunks, 5, 100));
  ASSERT_OK(database->Adopt({segment}));
  ASSERT_EQ(SmallSave(*database, 4).outcome, Outcome::kCommitted);
  ASSERT_OK(database->Secure());
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(Store())) {
    const auto others =
        entry.status().permissions() & (std::filesystem::perms::group_all |
                                        std::filesystem::perms::others_all);
    EXPECT_EQ(others, std::filesystem::perms::none) << entry.path();
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("LOG")));
  }
}

}  // namespace
}  // namespace ckptree::kv
