// SPDX-License-Identifier: Apache-2.0

// Files that a disk cannot give (EIO): of one of the journal or of the index
// nothing is lost, as of one that is damaged.

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/store_creation.h"
#include "tests/fault/late_fs.h"
#include "tests/kv/recovery_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::StatusIs;
using ::testing::HasSubstr;

// Of files that cannot be opened, and of ones that cannot be read.
class UnreadableTest : public RecoveryTest,
                       public ::testing::WithParamInterface<bool> {
 protected:
  UnreadableTest() { options_.file_system = disk_; }

  void Fail(const std::string& file) {
    disk_->HideFile(Store() + "/" + file, std::generic_category().message(EIO),
                    GetParam());
  }
  void Heal() { disk_->HideFile("", "", true); }

  const std::shared_ptr<testing::LateFs> disk_ =
      std::make_shared<testing::LateFs>();
};

TEST_P(UnreadableTest, OneFileOfTheJournalCostsNothing) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/") || file.starts_with("journal/a-")) return;
    const std::uint64_t before = disk_->hidden();
    Fail(file);
    ExpectReadsAndWrites();
    Heal();
    if (disk_->hidden() > before) ++tried;
  });
  EXPECT_GE(tried, 4);
}

// Blocks, and records of the last second, may be there alone, and be there
// again tomorrow.
TEST_P(UnreadableTest, AFirstCopyIsWaitedFor) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/a-")) return;
    const auto before = fs::last_write_time(Store() + "/" + file);
    Fail(file);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnknown,
                                 ::testing::AllOf(HasSubstr(file),
                                                  HasSubstr("repair"))));
    EXPECT_EQ(fs::last_write_time(Store() + "/" + file), before);
    Heal();
    ExpectReadsAndWrites();
    ++tried;
  });
  EXPECT_GE(tried, 4);
}

// Nor is a store taken for a creation that did not end, which another one would
// remove.
TEST_P(UnreadableTest, AStoreBesideTheMarkOfACreationIsLeftAlone) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/a-")) return;
    std::ofstream(Store() + "/CREATING") << "not finished\n";
    Fail(file);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnknown, HasSubstr(file)));
    EXPECT_THAT(LockForCreation(options_, Store()).status(),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr(file)));
    Heal();
    EXPECT_THAT(LockForCreation(options_, Store()).status(),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(Store())));
    ExpectReadsAndWrites();
    ++tried;
  });
  EXPECT_GE(tried, 4);
}

// The journal has all rows: the index is made anew, and the next open finds
// nothing wrong.
TEST_P(UnreadableTest, AFileOfTheIndexCostsNothing) {
  std::set<std::string> tried;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("db/") || HoldsPayload(file)) return;
    const std::uint64_t before = disk_->hidden();
    Fail(file);
    ExpectReadsAndWrites();
    if (disk_->hidden() == before) return;  // Nobody needs it.
    const std::string name = file.substr(3);
    tried.insert(name.ends_with(".sst") ? "a table"
                                        : name.substr(0, name.find('-')));
  });
  EXPECT_THAT(tried,
              ::testing::IsSupersetOf({"a table", "CURRENT", "MANIFEST"}));
}

// What is nowhere else is an error where it is read, and all else works.
TEST_P(UnreadableTest, ATableOfPayloadCostsWhatIsInItAlone) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("db/") || !HoldsPayload(file)) return;
    Fail(file);
    {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      EXPECT_EQ(writer->report().ordinal, commits_);
      for (const auto& [name, value] : rows_) {
        EXPECT_THAT(writer->Get(schema::Space::kRecords, RecordKey(name)),
                    testing::IsOkAndHolds(std::optional<std::string>(value)))
            << name;
      }
      ASSERT_EQ(Put(*writer, "more", "m").outcome, Outcome::kCommitted);
      for (int i = 0; i < 4; ++i) {
        const auto chunk = writer->Get(schema::Space::kChunks, ChunkKey(9, i));
        if (chunk.ok() && chunk->has_value()) {
          EXPECT_EQ(**chunk, Payload(9, i, 1000));
        } else {
          ++tried;
        }
      }
      ASSERT_OK(writer->Close());
    }
    {
      ASSERT_OK_AND_ASSIGN(const auto again, Open(Mode::kRead));
      EXPECT_THAT(again->Get(schema::Space::kRecords, RecordKey("more")),
                  testing::IsOkAndHolds(std::optional<std::string>("m")));
    }
    Heal();
  });
  EXPECT_GE(tried, 4);
}

// What this user may not read is not damaged.
TEST_P(UnreadableTest, AFileOfOthersIsNoDamage) {
  int tried = 0;
  ForEachFile([&](const std::string&) {
    if (tried > 0) return;  // Of one store.
    {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ASSERT_OK(writer->WriteRows());
      ASSERT_OK(writer->Close());
    }
    for (const auto& entry : fs::directory_iterator(Store() + "/journal")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("rows-")) continue;
      disk_->HideFile(entry.path().string(),
                      std::generic_category().message(EACCES), GetParam());
      ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
      std::vector<std::string> ragged;
      EXPECT_THAT(
          reader->CheckJournal(&ragged),
          StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(name)));
      ++tried;
    }
    Heal();
  });
  EXPECT_EQ(tried, 1);
}

// Somebody's folder takes a name: what was in the file is gone, and no more.
TEST_P(UnreadableTest, AFolderInThePlaceOfATable) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("db/") || !file.ends_with(".sst")) return;
    const bool payload = HoldsPayload(file);
    fs::remove(Store() + "/" + file);
    fs::create_directory(Store() + "/" + file);
    if (!payload) {
      ExpectReadsAndWrites();
    } else {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ASSERT_EQ(Put(*writer, "more", "m").outcome, Outcome::kCommitted);
    }
    ++tried;
  });
  EXPECT_GE(tried, 4);
}

// An index that was made anew without a table has it again when the disk does.
TEST_P(UnreadableTest, ATableThatIsThereAgainIsTaken) {
  options_.index_is_whole =
      [](const Database& database) -> absl::StatusOr<bool> {
    return database.Get(schema::Space::kChunks, ChunkKey(9, 0))
        .value_or(std::nullopt)
        .has_value();
  };
  const auto kept = [&] {
    std::vector<std::string> names;
    for (const std::string& name : Files()) {
      if (name.starts_with("db/unreadable-")) names.push_back(name.substr(3));
    }
    return names;
  };
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("db/") || !HoldsPayload(file)) return;
    const std::string name = file.substr(3);
    Fail(file);
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ASSERT_OK(writer->Close());
    }
    const bool holds_chunks =
        kept() == std::vector<std::string>{"unreadable-" + name};
    Heal();
    ExpectReadsAndWrites();
    EXPECT_THAT(kept(), ::testing::IsEmpty());
    if (holds_chunks) ++tried;
  });
  EXPECT_EQ(tried, 2);
}

// Reads that fail from one on, or one that gives a flipped bit, while segments
// are adopted: either they are not, or all of them is there. True: reads fail.
class UnreadableAdoptionTest : public UnreadableTest {
 protected:
  void ExpectRecords(const Database& database, std::uint64_t version) {
    for (const schema::Space space :
         {schema::Space::kLeaves, schema::Space::kChunks}) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_THAT(database.Get(space, ChunkKey(version, i)),
                    testing::IsOkAndHolds(
                        std::optional<std::string>(Payload(version, i, 9000))))
            << version << " " << i;
      }
    }
  }

  absl::Status Take(Database& database, std::uint64_t version) {
    std::vector<StagedSegment> segments;
    for (const schema::Space space :
         {schema::Space::kLeaves, schema::Space::kChunks}) {
      absl::StatusOr<StagedSegment> staged =
          Stage(database, version, space, 4, 9000);
      if (!staged.ok()) return staged.status();
      segments.push_back(*std::move(staged));
    }
    return database.Adopt(segments);
  }
};

TEST_P(UnreadableAdoptionTest, NothingIsAdoptedThatIsNotThere) {
  int refused = 0;
  int nth = 1;
  for (bool fired = true; fired; ++nth) {
    SCOPED_TRACE(nth);
    std::filesystem::remove_all(Store());
    const std::uint64_t before = disk_->hidden();
    absl::Status taken;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Create());
      // One that fails once is tried again.
      disk_->FailRead("/staging/", nth, !GetParam(), /*stays=*/GetParam());
      taken = Take(*database, 1);
      disk_->FailRead("", 0, false);
      fired = disk_->hidden() > before;
      if (taken.ok()) ExpectRecords(*database, 1);
      if (!taken.ok()) ++refused;
      EXPECT_OK(Take(*database, 2));
      ASSERT_OK(database->Close());
    }
    ASSERT_OK_AND_ASSIGN(const auto again, Open(Mode::kRead));
    if (taken.ok()) ExpectRecords(*again, 1);
    ExpectRecords(*again, 2);
  }
  EXPECT_GE(nth, 10);
  EXPECT_GE(refused, 6);
}

// The index is made anew while a read fails, whichever it is.
TEST_P(UnreadableAdoptionTest, AnIndexIsMadeAnewOrTheOpenSaysWhyNot) {
  int refused = 0;
  int nth = 1;
  // Where all fail from one on an open takes long.
  const int step = GetParam() ? 7 : 1;
  for (bool fired = true; fired; nth += step) {
    SCOPED_TRACE(nth);
    MakeStore(/*closed=*/true);
    for (const std::string& name : Files()) {
      if (!name.starts_with("db/MANIFEST")) continue;
      std::fstream file(Store() + "/" + name,
                        std::ios::in | std::ios::out | std::ios::binary);
      file << std::string(200, '\0');
    }
    const std::uint64_t before = disk_->hidden();
    disk_->FailRead("/", nth, !GetParam(), /*stays=*/GetParam());
    refused += Open().ok() ? 0 : 1;
    disk_->FailRead("", 0, false);
    fired = disk_->hidden() > before;
    ExpectReadsAndWrites();
  }
  EXPECT_GE(nth, 30);
  EXPECT_GE(refused, 1);
}

// RocksDB opens a table once it wrote it, and one read of that may fail.
TEST_P(UnreadableAdoptionTest, AFlushBearsOneRead) {
  const std::string row = "row of " + std::to_string(GetParam());
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  int nth = 1;
  for (bool fired = true; fired; ++nth) {
    SCOPED_TRACE(nth);
    ASSERT_EQ(Put(*database, row, std::to_string(nth)).outcome,
              Outcome::kCommitted);
    const std::uint64_t before = disk_->hidden();
    disk_->FailRead("/store/db/", nth, !GetParam());
    EXPECT_OK(database->WriteRows());
    disk_->FailRead("", 0, false);
    EXPECT_OK(database->health());
    fired = disk_->hidden() > before;
  }
  // Three reads of each, and one more where tables are put together by then.
  EXPECT_GE(nth, 4);
  EXPECT_EQ(Put(*database, row, "end").outcome, Outcome::kCommitted);
  ASSERT_OK(database->Close());
  ASSERT_OK_AND_ASSIGN(const auto again, Open());
  EXPECT_THAT(again->Get(schema::Space::kRecords, RecordKey(row)),
              testing::IsOkAndHolds(std::optional<std::string>("end")));
}

class FlippedReadsTest : public UnreadableAdoptionTest {};

// What is whole on the disk is still there when its reads are well again,
// whatever was made of them.
TEST_P(FlippedReadsTest, WhatTheDiskHasIsNotLost) {
  int refused = 0;
  for (const int percent : {100, 50, 30, 20, 10, 3}) {
    std::vector<std::uint64_t> seeds = {1, 2, 3, 4, 5, 6};
    // Without kv/rocks/steady_file chunks were lost here.
    if (percent == 30) seeds = {24};
    for (const std::uint64_t seed : seeds) {
      SCOPED_TRACE(percent * 100 + static_cast<int>(seed));
      MakeStore(/*closed=*/true);
      const std::uint64_t before = disk_->hidden();
      disk_->FlipSome("/store/db", percent, seed);
      refused += Open().ok() ? 0 : 1;
      disk_->FlipSome("", 0, 0);
      if (percent >= 20) EXPECT_GT(disk_->hidden(), before);
      ExpectReadsAndWrites();
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GE(refused, 6);
}

INSTANTIATE_TEST_SUITE_P(Fails, UnreadableAdoptionTest,
                         ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Flips, UnreadableAdoptionTest,
                         ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Flips, FlippedReadsTest, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Opens, UnreadableTest, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Reads, UnreadableTest, ::testing::Values(false));

}  // namespace
}  // namespace ckptree::kv
