// SPDX-License-Identifier: Apache-2.0

// A full disk, where an open for writing has the room of the reserve alone.

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/segment_writer.h"
#include "kv/testing/full_disk.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using schema::Space;

class RoomToOpenTest : public KvTest,
                       public ::testing::WithParamInterface<const char*> {
 protected:
  RoomToOpenTest() {
    full_.takes_the_room = Store() + "/journal/reserve";
    full_.refused = GetParam();
  }

  FullDisk full_;
};

TEST_P(RoomToOpenTest, AStoreCommitsAndFreesFiles) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    for (const std::uint64_t version : {1u, 2u}) {
      ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                           Stage(*database, version, Space::kChunks, 6, 10000));
      ASSERT_OK(database->Adopt({segment}));
    }
    ASSERT_OK(database->Secure());
  }
  ASSERT_TRUE(std::filesystem::exists(full_.takes_the_room));
  options_.file_system = MakeFullDisk(&full_);
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  EXPECT_GT(full_.refusals, 0);
  EXPECT_OK(database->health());
  EXPECT_EQ(Put(*database, "a", "1").outcome, Outcome::kCommitted);
  ASSERT_TRUE(FindTable(Payload(1, 3, 10000)).has_value());
  ASSERT_OK(
      database->Drop(Space::kChunks, {{VersionKey(1, ""), VersionKey(2, "")}}));
  // Not at a later open.
  EXPECT_FALSE(FindTable(Payload(1, 3, 10000)).has_value());
  EXPECT_THAT(database->Get(Space::kChunks, ChunkKey(2, 3)),
              IsOkAndHolds(Payload(2, 3, 10000)));
}

INSTANTIATE_TEST_SUITE_P(Files, RoomToOpenTest,
                         ::testing::Values("MANIFEST-", "OPTIONS-"));

}  // namespace
}  // namespace ckptree::kv
