// SPDX-License-Identifier: Apache-2.0

// A rank that closes says so: nobody waits for it.

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "ckptree/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWorld = 3;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

// The deadline of these is kLong: whoever waited for it would fail the test.
class RanksClosedTest : public RanksTest {
 protected:
  static auto Closed() {
    return StatusIs(kUnavailable, AllOf(HasSubstr("step 2 was not saved"),
                                        HasSubstr("rank 1 of 3"),
                                        HasSubstr("has closed its store")));
  }
};

TEST_F(RanksClosedTest, TheOthersHearItAtOnce) {
  absl::Notification closed;
  OnAll(kWorld, [&](int rank) {
    auto group = Open(rank, kWorld);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      closed.Notify();
      return;
    }
    closed.WaitForNotification();
    const absl::Time begun = absl::Now();
    EXPECT_THAT(SaveAll(*group, 2), Closed()) << rank;
    EXPECT_LT(absl::Now() - begun, kLong / 2);
    EXPECT_OK(group->Close());
  });
  ExpectStore({1}, kWorld);
}

// Also one that goes while the others wait for it, and without a call of
// Close().
TEST_F(RanksClosedTest, WhileTheOthersWait) {
  absl::Notification begun;
  OnAll(kWorld, [&](int rank) {
    std::optional<RankGroup> group;
    {
      auto opened = Open(rank, kWorld);
      ASSERT_OK(opened);
      group = *std::move(opened);
    }
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      begun.WaitForNotification();
      group.reset();
      return;
    }
    const Bytes rows = RowsOf(rank, 2);
    StepBuilder builder = group->Begin(2);
    PutAll(&builder, rank, kWorld, 2, rows);
    SaveHandle handle = std::move(builder).Commit();
    if (rank == 0) begun.Notify();
    EXPECT_THAT(handle.WaitCommitted(kLong), Closed()) << rank;
    EXPECT_OK(group->Close());
  });
  ExpectStore({1}, kWorld);
}

// Who closes waits for its saves: that they are there is known to all.
TEST_F(RanksClosedTest, WhatItHandedOverIsCommitted) {
  OnAll(kWorld, [&](int rank) {
    auto group = Open(rank, kWorld);
    ASSERT_OK(group);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const Bytes rows = RowsOf(rank, step);
      StepBuilder builder = group->Begin(step);
      PutAll(&builder, rank, kWorld, step, rows);
      SaveHandle handle = std::move(builder).Commit();
      if (step == 3) {
        EXPECT_OK(group->Close()) << rank;
        EXPECT_OK(handle.WaitCommitted(kLong)) << rank;
      }
    }
  });
  ExpectStore({1, 2, 3}, kWorld);
}

// Another process is welcome in its place, also after a step has failed.
TEST_F(RanksClosedTest, OneThatIsStartedAgainIsWelcome) {
  absl::Notification closed;
  absl::Notification failed;
  absl::Notification came;
  OnAll(kWorld, [&](int rank) {
    auto group = Open(rank, kWorld);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      closed.Notify();
      failed.WaitForNotification();
      group = Open(rank, kWorld);
      ASSERT_OK(group);
      came.Notify();
    } else {
      closed.WaitForNotification();
      EXPECT_THAT(SaveAll(*group, 2), Closed()) << rank;
      if (rank == 0) failed.Notify();
      came.WaitForNotification();
    }
    EXPECT_OK(SaveAll(*group, 2)) << rank;
    EXPECT_OK(SaveAll(*group, 3)) << rank;
    EXPECT_OK(group->Close());
  });
  ExpectStore({1, 2, 3}, kWorld);
}

// The process in its place is there before anybody has missed it: the step of
// that moment is saved.
TEST_F(RanksClosedTest, OneThatIsThereInTimeIsNotMissed) {
  absl::Notification came;
  OnAll(kWorld, [&](int rank) {
    auto group = Open(rank, kWorld);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      group = Open(rank, kWorld);
      ASSERT_OK(group);
      came.Notify();
    } else {
      came.WaitForNotification();
    }
    EXPECT_OK(SaveAll(*group, 2)) << rank;
    EXPECT_OK(group->Close());
  });
  ExpectStore({1, 2}, kWorld);
}

}  // namespace
}  // namespace ckptree::testing
