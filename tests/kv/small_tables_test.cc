// SPDX-License-Identifier: Apache-2.0

// What a compaction of `small` writes anew, and what it leaves alone.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "kv/testing/forced_compaction.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using schema::Space;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::uint64_t kFirst = 3;
constexpr std::uint64_t kLast = 60;

class SmallTablesTest : public KvTest {
 protected:
  static std::string BlockKey(std::uint64_t version) {
    return VersionKey(version, "block");
  }
  static std::string Block(std::uint64_t version) {
    return Payload(version, static_cast<int>(version), kBytes);
  }

  void Save(std::uint64_t version) {
    CommitRequest request;
    request.version = version;
    request.batch.PutBlock(BlockKey(version), Block(version));
    ASSERT_OK(database_->Commit(std::move(request)).status);
    living_.insert(version);
  }
  void Delete(std::uint64_t from, std::uint64_t to) {
    CommitRequest request;
    request.kind = CommitKind::kCollect;
    for (std::uint64_t version = from; version <= to; ++version) {
      request.batch.Delete(Space::kSmall, BlockKey(version));
      living_.erase(version);
    }
    ASSERT_OK(database_->Commit(std::move(request)).status);
  }
  void Reopen() {
    database_.reset();
    ASSERT_OK_AND_ASSIGN(database_, Open());
  }
  // The table that has the block; empty: none.
  std::string TableOf(std::uint64_t version) {
    const auto found = FindTable(Block(version).substr(0, 64));
    return found.has_value() ? found->first : "";
  }
  void ExpectLiving() {
    for (std::uint64_t version = kFirst; version <= kLast + 9; ++version) {
      if (living_.contains(version)) {
        EXPECT_THAT(database_->Get(Space::kSmall, BlockKey(version)),
                    IsOkAndHolds(Block(version)));
      } else {
        EXPECT_THAT(database_->Get(Space::kSmall, BlockKey(version)),
                    IsOkAndHolds(std::nullopt));
      }
    }
  }

  // Saves, in tables of some 16 MiB that no compaction waits for.
  void Fill() {
    ASSERT_OK_AND_ASSIGN(database_, Create());
    for (std::uint64_t version = kFirst; version <= kLast; ++version) {
      ASSERT_NO_FATAL_FAILURE(Save(version));
      if (version % 8 == 0) {
        ASSERT_NO_FATAL_FAILURE(Reopen());
      }
    }
    database_.reset();
    ASSERT_OK(Settle(Store() + "/db", Space::kSmall));
    ASSERT_NO_FATAL_FAILURE(Reopen());
    ASSERT_NO_FATAL_FAILURE(ExpectLiving());
  }

  std::unique_ptr<Database> database_;
  std::set<std::uint64_t> living_;
};

TEST_F(SmallTablesTest, TablesWithoutDeletionsStay) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const std::string early = TableOf(5);
  const std::string late = TableOf(55);
  ASSERT_THAT(early, Not(IsEmpty()));
  ASSERT_THAT(late, Not(IsEmpty()));
  ASSERT_NE(early, late);
  ASSERT_NO_FATAL_FAILURE(Delete(4, 8));
  ASSERT_OK(database_->CompactSmall());
  EXPECT_EQ(TableOf(55), late);
  EXPECT_NE(TableOf(9), early);
  for (std::uint64_t version = 4; version <= 8; ++version) {
    EXPECT_EQ(TableOf(version), "") << version;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
  // At the other end, with a save that came and went in between.
  ASSERT_NO_FATAL_FAILURE(Save(kLast + 1));
  const std::string first = TableOf(9);
  ASSERT_NO_FATAL_FAILURE(Delete(54, kLast + 1));
  ASSERT_OK(database_->CompactSmall());
  EXPECT_EQ(TableOf(9), first);
  for (std::uint64_t version = 54; version <= kLast + 1; ++version) {
    EXPECT_EQ(TableOf(version), "") << version;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
  ASSERT_NO_FATAL_FAILURE(Reopen());
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
  ASSERT_NO_FATAL_FAILURE(Save(kLast + 2));
  ASSERT_NO_FATAL_FAILURE(Reopen());
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
}

TEST_F(SmallTablesTest, NothingIsWrittenTwiceForNothing) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const std::string table = TableOf(20);
  ASSERT_OK(database_->CompactSmall());
  EXPECT_EQ(TableOf(20), table);
  // What was deleted was never in a table.
  ASSERT_NO_FATAL_FAILURE(Save(kLast + 3));
  ASSERT_NO_FATAL_FAILURE(Delete(kLast + 3, kLast + 3));
  ASSERT_OK(database_->CompactSmall());
  EXPECT_EQ(TableOf(20), table);
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
}

TEST_F(SmallTablesTest, AllMayGo) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_NO_FATAL_FAILURE(Delete(kFirst, kLast));
  ASSERT_OK(database_->CompactSmall());
  EXPECT_EQ(TableOf(20), "");
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
  ASSERT_NO_FATAL_FAILURE(Reopen());
  ASSERT_NO_FATAL_FAILURE(Save(kLast + 1));
  ASSERT_NO_FATAL_FAILURE(ExpectLiving());
}

}  // namespace
}  // namespace ckptree::kv
