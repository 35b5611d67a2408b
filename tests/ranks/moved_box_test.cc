// SPDX-License-Identifier: Apache-2.0

// A box that goes from one rank to another between two steps: the step has it
// once, as the rank has it that has it now.

#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

class RanksMovedBoxTest : public RanksTest {};

TEST_F(RanksMovedBoxTest, TheRankThatHasItNowIsRead) {
  constexpr int kWorld = 2;
  // Rows 0-4 and 5-9 are of rank 0 at first, the last of rank 1; then rank 0
  // has the first alone, as they were, and rank 1 others of the second.
  const Bytes first = RandomBytes(kRows * kColumns * 4, 1);
  const Bytes second = RandomBytes(kRows * kColumns * 4, 2);
  const Bytes third = RandomBytes(kRows * kColumns * 4, 3);
  const Bytes newer = RandomBytes(kRows * kColumns * 4, 4);
  InGroup(kWorld, [&](RankGroup& group) {
    StepBuilder before = group.Begin(1);
    if (group.rank() == 0) {
      before.Put("w", Shard(0, 3, first)).Put("w", Shard(1, 3, second));
    } else {
      before.Put("w", Shard(2, 3, third));
    }
    ASSERT_OK(std::move(before).Commit().WaitCommitted(kLong));
    StepBuilder after = group.Begin(2);
    if (group.rank() == 0) {
      after.Put("w", Shard(0, 3, first));
    } else {
      after.Put("w", Shard(1, 3, newer)).Put("w", Shard(2, 3, third));
    }
    ASSERT_OK(std::move(after).Commit().WaitCommitted(kLong));
  });
  absl::StatusOr<Store> store = Store::Open(path(), {.read_only = true});
  ASSERT_OK(store);
  absl::StatusOr<Step> step = store->OpenStep(2);
  ASSERT_OK(step);
  Bytes expected = first;
  expected.insert(expected.end(), newer.begin(), newer.end());
  expected.insert(expected.end(), third.begin(), third.end());
  Bytes found(expected.size());
  ASSERT_OK(step->Read("w", found));
  EXPECT_TRUE(found == expected);
  const auto details = step->Details(*step->Leaves());
  ASSERT_OK(details);
  ASSERT_EQ(details->size(), 1u);
  EXPECT_EQ(details->front().boxes.size(), 3u);
}

}  // namespace
}  // namespace ckptree::testing
