// SPDX-License-Identifier: Apache-2.0

// Two copies of leaf records: damage of one of them costs nothing.

#include "kv/rocks/leaf_copies.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/options.h"
#include "kv/testing/database_peer.h"
#include "kv/testing/failing_disk.h"
#include "kv/value.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::FlipByte;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Records = std::map<std::string, std::string>;

class LeafCopiesTest : public KvTest {
 protected:
  // Makes a store with one leaves segment a version, closed.
  void MakeStore(std::uint64_t versions, int records, std::size_t bytes) {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (std::uint64_t version = 1; version <= versions; ++version) {
      ASSERT_NO_FATAL_FAILURE(AdoptOne(*database, version, records, bytes));
    }
    FindFiles(*database);
  }

  void AdoptOne(Database& database, std::uint64_t version, int records,
                std::size_t bytes) {
    ASSERT_OK_AND_ASSIGN(
        const StagedSegment segment,
        Stage(database, version, Space::kLeaves, records, bytes));
    ASSERT_OK(database.Adopt({segment}));
    for (int i = 0; i < records; ++i) {
      written_[ChunkKey(version, i)] = Payload(version, i, bytes);
    }
  }

  void FindFiles(const Database& database) {
    first_ = database.LiveFiles().value();
    second_ = database.LeafCopies().value();
  }

  // Tolerates what stands outside of the records.
  std::unique_ptr<Database> OpenForReading() {
    Options options = options_;
    options.log = [this](Severity severity, std::string_view text) {
      if (severity == Severity::kWarning) warnings_.emplace_back(text);
    };
    auto opened =
        Database::Open(Store(), options, Mode::kReadSalvaged, NoCheck);
    EXPECT_OK(opened);
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // By every way of reading.
  void ExpectAllRead() {
    const auto database = OpenForReading();
    ASSERT_NE(database, nullptr);
    // Not printed: they are long.
    EXPECT_TRUE(ScanAll(*database) == written_);
    for (const auto& [key, value] : written_) {
      ASSERT_THAT(database->Get(Space::kLeaves, key), IsOkAndHolds(value));
      ASSERT_OK_AND_ASSIGN(const Value read,
                           database->Read(Space::kLeaves, key));
      ASSERT_EQ(read.view(), value);
      ASSERT_OK_AND_ASSIGN(const Value view,
                           database->View(Space::kLeaves, key));
      ASSERT_EQ(view.view(), value);
    }
  }

  static Records ScanAll(const Database& database) {
    auto scan = database.Scan(Space::kLeaves, "", "");
    EXPECT_OK(scan);
    Records records;
    for (; scan->Valid(); scan->Next()) {
      EXPECT_TRUE(records.emplace(scan->key(), scan->value()).second);
    }
    EXPECT_OK(scan->status());
    return records;
  }

  static std::string Contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Where the record's value stands in the file.
  std::uint64_t PlaceOf(const LiveFile& file, const std::string& key) const {
    const std::size_t at = Contents(file.path).find(written_.at(key));
    EXPECT_NE(at, std::string::npos);
    return at;
  }

  Records written_;
  std::vector<LiveFile> first_;
  std::vector<LiveFile> second_;
  std::vector<std::string> warnings_;
};

TEST_F(LeafCopiesTest, BothHaveTheSameBytes) {
  MakeStore(2, 20, 1000);
  ASSERT_THAT(first_, SizeIs(2));
  ASSERT_THAT(second_, SizeIs(2));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(first_[i].copy);
    EXPECT_TRUE(second_[i].copy);
    EXPECT_NE(first_[i].path, second_[i].path);
    EXPECT_EQ(Contents(first_[i].path), Contents(second_[i].path));
    EXPECT_FALSE(std::filesystem::equivalent(first_[i].path, second_[i].path));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(LeafCopiesTest, EveryFlippedByteOfOneCopyIsSurvived) {
  MakeStore(1, 12, 20);
  for (const LiveFile& file : {first_[0], second_[0]}) {
    for (std::uint64_t at = 0; at < file.bytes; ++at) {
      SCOPED_TRACE(file.path + " " + std::to_string(at));
      FlipByte(file.path, at);
      ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
      FlipByte(file.path, at);
    }
  }
  EXPECT_THAT(warnings_, Not(IsEmpty()));
}

TEST_F(LeafCopiesTest, EitherFileMayBeGoneOrCut) {
  MakeStore(3, 40, 1000);
  for (const LiveFile& file : {first_[1], second_[1]}) {
    const std::string whole = Contents(file.path);
    std::filesystem::resize_file(file.path, whole.size() / 2);
    ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
    std::filesystem::remove(file.path);
    ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
    std::ofstream(file.path, std::ios::binary) << whole;
  }
}

// Not so with chunks; a scan must not end there as if that were all.
TEST_F(LeafCopiesTest, AScanDoesNotEndAtATableThatIsGone) {
  std::vector<LiveFile> files;
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (std::uint64_t version = 1; version <= 3; ++version) {
      ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                           Stage(*database, version, Space::kChunks, 10, 1000));
      ASSERT_OK(database->Adopt({segment}));
    }
    files = database->LiveFiles().value();
  }
  ASSERT_THAT(files, SizeIs(3));
  std::filesystem::remove(files[1].path);
  const auto database = OpenForReading();
  ASSERT_OK_AND_ASSIGN(auto scan, database->Scan(Space::kChunks, "", ""));
  while (scan.Valid()) scan.Next();
  EXPECT_FALSE(scan.status().ok());
}

// Several blocks: each copy is damaged where the other one is whole.
TEST_F(LeafCopiesTest, DamageAtDifferentPlacesIsSurvivedAndToldOnce) {
  MakeStore(1, 200, 1000);
  for (const int i : {0, 60, 120, 199}) {
    FlipByte(first_[0].path, PlaceOf(first_[0], ChunkKey(1, i)));
  }
  for (const int i : {30, 90, 150}) {
    FlipByte(second_[0].path, PlaceOf(second_[0], ChunkKey(1, i)));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("copies")));
  const auto database = OpenForReading();
  ASSERT_OK_AND_ASSIGN(auto scan,
                       database->Scan(Space::kLeaves, ChunkKey(1, 50), ""));
  for (const int i : {150, 61, 30, 120, 0}) {
    scan.Seek(ChunkKey(1, i));
    ASSERT_TRUE(scan.Valid()) << i;
    EXPECT_EQ(scan.key(), ChunkKey(1, std::max(i, 50)));
  }
}

TEST_F(LeafCopiesTest, DamageOfBothIsAnError) {
  MakeStore(1, 200, 1000);
  const std::string lost = ChunkKey(1, 100);
  FlipByte(first_[0].path, PlaceOf(first_[0], lost));
  FlipByte(second_[0].path, PlaceOf(second_[0], lost));
  const auto database = OpenForReading();
  EXPECT_THAT(database->Get(Space::kLeaves, lost),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(database->Read(Space::kLeaves, lost).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(database->View(Space::kLeaves, lost).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(auto scan, database->Scan(Space::kLeaves, "", ""));
  int read = 0;
  for (; scan.Valid(); scan.Next()) ++read;
  EXPECT_GT(read, 80);
  EXPECT_LE(read, 100);
  EXPECT_THAT(scan.status(), StatusIs(absl::StatusCode::kDataLoss));
  // What stands outside of the block is there.
  scan.Seek(ChunkKey(1, 130));
  ASSERT_TRUE(scan.Valid());
  EXPECT_EQ(scan.value(), written_[ChunkKey(1, 130)]);
  EXPECT_OK(scan.status());
  scan.Seek(lost);
  EXPECT_FALSE(scan.Valid());
  EXPECT_THAT(scan.status(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(LeafCopiesTest, DropDropsBoth) {
  MakeStore(3, 20, 100);
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  std::uint64_t dropped = 0;
  ASSERT_OK(database->Drop(Space::kLeaves,
                           {{VersionKey(2, ""), VersionKey(3, "")}}, &dropped));
  EXPECT_EQ(dropped, 1);
  FindFiles(*database);
  ASSERT_THAT(first_, SizeIs(2));
  ASSERT_THAT(second_, SizeIs(2));
  for (const LiveFile& file : second_) {
    EXPECT_NE(file.first_key, ChunkKey(2, 0));
  }
  EXPECT_THAT(database->Get(Space::kLeaves, ChunkKey(2, 3)),
              IsOkAndHolds(std::nullopt));
}

TEST_F(LeafCopiesTest, RewriteRewritesBoth) {
  MakeStore(4, 30, 500);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    FindFiles(*database);
    const auto dead = [](std::string_view key) {
      return static_cast<unsigned char>(key.back()) % 3 == 0;
    };
    int told = 0;
    ASSERT_OK(RewriteKeeping(*database, Space::kLeaves, first_,
                             [&](std::string_view key, std::size_t) {
                               ++told;
                               return !dead(key);
                             }));
    EXPECT_EQ(told, 120);
    std::erase_if(written_, [&](const auto& it) { return dead(it.first); });
    FindFiles(*database);
    ASSERT_THAT(first_, SizeIs(1));
    ASSERT_THAT(second_, SizeIs(1));
    EXPECT_THAT(database->CountEntries(first_[0]), IsOkAndHolds(80));
    EXPECT_THAT(database->CountEntries(second_[0]), IsOkAndHolds(80));
    EXPECT_OK(database->CheckFile(second_[0]));
    EXPECT_OK(database->CheckLeafCopies(first_[0]));
    EXPECT_THAT(RewriteKeeping(*database, Space::kLeaves, second_,
                               [](auto, auto) { return true; }),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  FlipByte(first_[0].path, 100);
  ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
}

// The copy that cannot be read stays; its records are still in the first.
TEST_F(LeafCopiesTest, RewriteBesideADamagedCopy) {
  MakeStore(2, 30, 500);
  FlipByte(second_[0].path, PlaceOf(second_[0], written_.begin()->first));
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    FindFiles(*database);
    ASSERT_OK(RewriteKeeping(*database, Space::kLeaves, first_,
                             [](auto, auto) { return true; }));
    EXPECT_TRUE(ScanAll(*database) == written_);
    EXPECT_OK(database->health());
  }
  ASSERT_NO_FATAL_FAILURE(ExpectAllRead());
}

TEST_F(LeafCopiesTest, ChecksSeeBoth) {
  MakeStore(2, 30, 500);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
    for (const LiveFile& file : first_) {
      EXPECT_OK(database->CheckLeafCopies(file));
    }
    for (const LiveFile& file : second_) EXPECT_OK(database->CheckFile(file));
  }
  FlipByte(second_[1].path, PlaceOf(second_[1], written_.rbegin()->first));
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_THAT(
      database->CheckFile(second_[1]),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr(second_[1].path)));
  EXPECT_OK(database->CheckFile(first_[1]));
  EXPECT_THAT(database->CheckLeafCopies(first_[1]),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(database->CheckLeafCopies(first_[0]));
}

TEST_F(LeafCopiesTest, MendsWhereOneIsMissing) {
  MakeStore(4, 30, 500);
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  ASSERT_OK(database->MendLeafCopies());
  FindFiles(*database);
  ASSERT_THAT(second_, SizeIs(4));
  DatabasePeer::DropFile(*database, first_[0]);
  DatabasePeer::DropFile(*database, second_[1]);
  // One that a compaction made cannot be adopted as it is.
  ASSERT_OK(RewriteKeeping(*database, Space::kLeaves, {first_[2], first_[3]},
                           [](auto, auto) { return true; }));
  FindFiles(*database);
  DatabasePeer::DropFile(*database, second_.back());
  FindFiles(*database);
  ASSERT_THAT(first_, SizeIs(2));
  ASSERT_OK(database->MendLeafCopies());
  FindFiles(*database);
  EXPECT_THAT(second_, SizeIs(2));
  EXPECT_THAT(database->ListStaging(), IsOkAndHolds(IsEmpty()));
  for (const LiveFile& file : first_) {
    EXPECT_OK(database->CheckLeafCopies(file));
  }
  for (const LiveFile& file : second_) {
    EXPECT_OK(database->CheckFile(file));
    EXPECT_THAT(database->CountEntries(file),
                IsOkAndHolds(file.last_key < ChunkKey(3, 0) ? 30 : 60));
  }
}

// Each operation that changes something fails once in an adoption.
TEST_F(LeafCopiesTest, AdoptionTakesBothOrNone) {
  FailurePlan plan;
  options_.file_system = MakeFailingDisk(&plan);
  std::int64_t failures = 0;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    std::filesystem::remove_all(Store());
    std::string staged;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Create());
      ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                           Stage(*database, 1, Space::kLeaves, 20, 100));
      staged = segment.path;
      plan.Arm(at, /*from_then_on=*/false);
      const absl::Status adopted = database->Adopt({segment});
      const std::int64_t failed = plan.failed();
      plan.Arm(-1, false);
      if (failed == 0) {
        EXPECT_OK(adopted);
        break;
      }
      ++failures;
      if (!adopted.ok()) {
        EXPECT_TRUE(std::filesystem::exists(staged));
        EXPECT_FALSE(std::filesystem::exists(staged + ".copy"));
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    FindFiles(*database);
    EXPECT_EQ(first_.size(), second_.size());
    for (const LiveFile& file : first_) {
      EXPECT_OK(database->CheckFile(file));
      EXPECT_OK(database->CheckLeafCopies(file));
    }
  }
  EXPECT_GT(failures, 4);
}

}  // namespace
}  // namespace ckptree::kv
