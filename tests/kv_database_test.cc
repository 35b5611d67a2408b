// Creating, opening, committing, adopting, reading, dropping.

#include "kv/database.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/spaces.h"
#include "tests/kv_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using schema::Space;

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
  EXPECT_EQ(database->report().head.ordinal, 2);
  EXPECT_FALSE(database->report().copied);
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("a")),
              IsOkAndHolds(Optional(std::string("1"))));
  EXPECT_EQ(Put(*database, "b", "2").ordinal, 3);
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
    EXPECT_EQ(PayloadOf(read.view()), Payload(7, 3, 10000));
    ASSERT_OK_AND_ASSIGN(const Value view,
                         database->View(Space::kChunks, ChunkKey(7, 3)));
    EXPECT_EQ(PayloadOf(view.view()), Payload(7, 3, 10000));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(PayloadOf(view.view()).data()) %
                  64,
              0);
    ASSERT_OK_AND_ASSIGN(const Value leaf,
                         database->View(Space::kLeaves, ChunkKey(7, 2)));
    EXPECT_EQ(leaf.view(), Payload(7, 2, 100));
    EXPECT_THAT(database->View(Space::kChunks, ChunkKey(7, 9)),
                StatusIs(absl::StatusCode::kNotFound));

    for (const Space space : {Space::kChunks, Space::kLeaves}) {
      ASSERT_OK(
          database->Drop(space, VersionKey(7, ""), VersionKey(8, "")));
    }
    EXPECT_THAT(database->LiveFiles(), IsOkAndHolds(IsEmpty()));
    EXPECT_THAT(database->Read(Space::kChunks, ChunkKey(7, 3)),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(database->View(Space::kChunks, ChunkKey(7, 3)),
                StatusIs(absl::StatusCode::kNotFound));
    // What was read stays.
    EXPECT_EQ(PayloadOf(view.view()), Payload(7, 3, 10000));
    EXPECT_EQ(PayloadOf(read.view()), Payload(7, 3, 10000));
  }
  EXPECT_OK(database->Close());
}

}  // namespace
}  // namespace ckptree::kv
