// SPDX-License-Identifier: Apache-2.0

// Ranks that have not made as many calls for a step as the others have.

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

constexpr int kWorld = 2;
constexpr auto kUnavailable = absl::StatusCode::kDeadlineExceeded;

class RanksRetryTest : public RanksTest {
 protected:
  static RankOptions Hasty(int rank) {
    RankOptions options = Options(rank, kWorld);
    options.deadline = absl::Seconds(1);
    return options;
  }
  // How often it was tried until the step was there, but for tries that failed
  // at once as a rank had closed.
  static int SaveUntilItIsThere(RankGroup& group, std::int64_t step) {
    int tries = 0;
    while (true) {
      const absl::Status saved = SaveAll(group, step);
      if (absl::IsUnavailable(saved)) continue;
      ++tries;
      if (saved.ok() || tries == 6) {
        EXPECT_OK(saved);
        return tries;
      }
    }
  }
};

TEST_F(RanksRetryTest, OneWasStartedAgainAlone) {
  OnAll(kWorld, [&](int rank) {
    std::optional<RankGroup> group;
    auto opened = RankGroup::Open(path(), Hasty(rank));
    ASSERT_OK(opened);
    group = *std::move(opened);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      // Gone before step 2; the coordinator welcomes it while it waits.
      group.reset();
      auto again = RankGroup::Open(path(), Hasty(rank));
      ASSERT_OK(again);
      group = *std::move(again);
      EXPECT_LE(SaveUntilItIsThere(*group, 2), 2);
    } else {
      // A first one waits in vain, or not.
      EXPECT_LE(SaveUntilItIsThere(*group, 2), 3);
    }
    ASSERT_OK(SaveAll(*group, 3));
    EXPECT_OK(group->Close());
  });
  ExpectStore({1, 2, 3}, kWorld);
}

// Also while the others save nothing.
TEST_F(RanksRetryTest, OneIsWelcomeAgainAtAnyTime) {
  absl::Notification came;
  OnAll(kWorld, [&](int rank) {
    auto group = RankGroup::Open(path(), Hasty(rank));
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      group = RankGroup::Open(path(), Hasty(rank));
      came.Notify();
      ASSERT_OK(group);
    } else {
      came.WaitForNotification();
    }
    EXPECT_OK(SaveAll(*group, 2));
    EXPECT_OK(group->Close());
  });
  ExpectStore({1, 2}, kWorld);
}

TEST_F(RanksRetryTest, OneCalledOnceMore) {
  for (const int alone : {1, 0}) {
    absl::Notification called;
    const std::int64_t step = 5 + alone;
    OnAll(kWorld, [&](int rank) {
      auto group = RankGroup::Open(path(), Hasty(rank));
      ASSERT_OK(group);
      if (rank == alone) {
        const absl::Status saved = SaveAll(*group, step);
        EXPECT_EQ(saved.code(), kUnavailable) << saved;
        called.Notify();
      } else {
        called.WaitForNotification();
      }
      // The other may still meet the call that just ends.
      EXPECT_LE(SaveUntilItIsThere(*group, step), 2) << alone << " was alone";
      EXPECT_OK(SaveAll(*group, step + 10));
      EXPECT_OK(group->Close());
    });
  }
  ExpectStore({5, 6, 15, 16}, kWorld);
}

}  // namespace
}  // namespace ckptree::testing
