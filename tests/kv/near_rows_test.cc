// SPDX-License-Identifier: Apache-2.0

// Look-ups of rows by an iterator, against those one by one; and the many
// preconditions of one commit, which are looked up so.

#include "kv/near_rows.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using schema::Space;

class NearRowsTest : public KvTest {
 protected:
  static std::string Name(int i) { return absl::StrFormat("row%04d", i); }

  // Each third of 300 rows, in several commits; each ninth goes again.
  void Fill(Database* database) {
    for (int begin = 0; begin < 300; begin += 50) {
      CommitRequest request;
      request.kind = CommitKind::kTag;
      for (int i = begin; i < begin + 50; ++i) {
        if (i % 3 != 0) continue;
        request.batch.Put(Space::kRecords, RecordKey(Name(i)),
                          std::to_string(i));
      }
      ASSERT_OK(database->Commit(std::move(request)).status);
    }
    CommitRequest request;
    request.kind = CommitKind::kTag;
    for (int i = 0; i < 300; i += 9) {
      request.batch.Delete(Space::kRecords, RecordKey(Name(i)));
    }
    ASSERT_OK(database->Commit(std::move(request)).status);
  }
};

TEST_F(NearRowsTest, AsOneByOne) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  ASSERT_OK_AND_ASSIGN(auto database, Create());
  ASSERT_NO_FATAL_FAILURE(Fill(database.get()));
  for (const bool opened_again : {false, true}) {
    if (opened_again) {
      database.reset();
      ASSERT_OK_AND_ASSIGN(database, Open());
    }
    for (int order = 0; order < 40; ++order) {
      std::vector<std::string> keys;
      for (unsigned i = 0; i < 1 + random() % 60; ++i) {
        keys.push_back(RecordKey(Name(static_cast<int>(random() % 310))));
      }
      keys.emplace_back("");
      keys.emplace_back(
          "\xff"
          "applied");  // A row of kv's own.
      if (order % 2 == 0) std::ranges::sort(keys);
      NearRows rows(*database);
      for (const std::string& key : keys) {
        std::optional<std::string> expected;
        if (!key.starts_with('\xff')) {
          ASSERT_OK_AND_ASSIGN(expected, database->Get(Space::kRecords, key));
        }
        ASSERT_OK_AND_ASSIGN(const std::optional<std::string_view> found,
                             rows.Find(key));
        EXPECT_EQ(found, expected) << key;
      }
    }
  }
}

TEST_F(NearRowsTest, AreThoseOfTheFirstLook) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_NO_FATAL_FAILURE(Fill(database.get()));
  NearRows rows(*database);
  EXPECT_THAT(rows.Find(RecordKey(Name(3))), IsOkAndHolds("3"));
  ASSERT_OK(Put(*database, Name(4), "new").status);
  ASSERT_OK(Put(*database, Name(6), "other").status);
  EXPECT_THAT(rows.Find(RecordKey(Name(4))), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(rows.Find(RecordKey(Name(6))), IsOkAndHolds("6"));
  EXPECT_THAT(NearRows(*database).Find(RecordKey(Name(4))),
              IsOkAndHolds("new"));
}

// One that does not hold, at each place among them, and of each sort.
TEST_F(NearRowsTest, EachOfManyPreconditionsCounts) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_NO_FATAL_FAILURE(Fill(database.get()));
  for (const std::size_t count : {7u, 8u, 30u}) {
    std::vector<Precondition> good;
    for (std::size_t n = count; n > 0; --n) {  // Not in their order.
      const int i = static_cast<int>(n);
      const bool there = i % 3 == 0 && i % 9 != 0;
      good.push_back({Space::kRecords, RecordKey(Name(i)),
                      there ? std::optional(std::to_string(i)) : std::nullopt});
    }
    CommitRequest request = PutRequest("mark", std::to_string(count));
    request.preconditions = good;
    EXPECT_EQ(database->Commit(request).outcome, Outcome::kCommitted);
    for (std::size_t bad = 0; bad < good.size(); ++bad) {
      const auto& expected = good[bad].expected;
      for (const std::optional<std::string>& wrong :
           {std::optional<std::string>("wrong"),
            expected.has_value() ? std::nullopt
                                 : std::optional<std::string>("also")}) {
        request = PutRequest("mark", "bad");
        request.preconditions = good;
        request.preconditions[bad].expected = wrong;
        EXPECT_EQ(database->Commit(request).outcome, Outcome::kConflict);
      }
    }
    EXPECT_THAT(database->Get(Space::kRecords, RecordKey("mark")),
                IsOkAndHolds(std::to_string(count)));
  }
}

}  // namespace
}  // namespace ckptree::kv
