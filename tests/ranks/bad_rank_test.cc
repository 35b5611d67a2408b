// SPDX-License-Identifier: Apache-2.0

// Ranks that are of another job, save another step, have no room left on their
// disk, or were forked off.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/ranks/group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fs.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWorld = 3;

using RanksBadRankTest = RanksTest;

TEST_F(RanksBadRankTest, TwoJobsOnOneStore) {
  InGroup(kWorld, [&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    if (group.rank() == 0) {
      // The whole of another job, while this one has the store.
      OnAll(2, [&](int rank) {
        RankOptions options = Options(rank, 2);
        options.job = "other";
        EXPECT_THAT(RankGroup::Open(path(), options).status(),
                    StatusIs(absl::StatusCode::kUnavailable,
                             HasSubstr("held by another writer")));
      });
      // And a rank alone.
      RankOptions options = Options(1, 2);
      options.job = "third";
      options.open_deadline = absl::Milliseconds(300);
      EXPECT_THAT(RankGroup::Open(path(), options).status(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("no coordinator of job third"),
                                 HasSubstr("but job test"))));
    }
    ASSERT_OK(SaveAll(group, 2));
  });
  ExpectStore({1, 2}, kWorld);
}

TEST_F(RanksBadRankTest, AnotherStepThanTheOthers) {
  OnAll(kWorld, [&](int rank) {
    // Nobody waits for the deadline.
    absl::StatusOr<RankGroup> group = Open(rank, kWorld);
    ASSERT_OK(group);
    // Rank 2 counts from 1, the others from 0; then from 2, and they from 3.
    for (const std::int64_t own : {11, 22}) {
      const std::int64_t others = own == 11 ? 10 : 23;
      if (rank == 2) {
        EXPECT_THAT(
            SaveAll(*group, own),
            StatusIs(absl::StatusCode::kFailedPrecondition,
                     AllOf(HasSubstr(absl::StrFormat("step %d was not", own)),
                           HasSubstr("all ranks have to save the same"))));
      } else {
        EXPECT_THAT(
            SaveAll(*group, others),
            StatusIs(absl::StatusCode::kFailedPrecondition,
                     AllOf(HasSubstr("rank 2 of 3"),
                           HasSubstr(absl::StrFormat(
                               "and rank 0 step %d: all ranks have to save the "
                               "same steps",
                               others)))))
            << rank;
      }
      EXPECT_OK(SaveAll(*group, own + 9)) << rank;
    }
    EXPECT_OK(group->Close());
  });
  ExpectStore({20, 31}, kWorld);
}

// Who comes late to a step that has failed without it saves no other step than
// the others; nor does who is ahead.
TEST_F(RanksBadRankTest, ARankBehindTheOthers) {
  absl::Notification ahead;
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    if (rank == 1) ahead.WaitForNotification();
    const auto begin = [&](std::int64_t step, const Bytes& rows) {
      StepBuilder builder = group.Begin(step);
      PutAll(&builder, rank, kWorld, step, rows);
      if (rank == 2 && step == 1) builder.Fail(absl::OutOfRangeError("no"));
      return std::move(builder).Commit();
    };
    const Bytes first = RowsOf(rank, 1);
    EXPECT_THAT(begin(1, first).WaitCommitted(kLong),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("no")));
    std::vector<Bytes> rows;
    std::vector<SaveHandle> handles;
    for (const std::int64_t step : {2, 3, 4}) {
      rows.push_back(RowsOf(rank, step));
      handles.push_back(begin(step, rows.back()));
      if (rank == 0 && step == 2) ahead.Notify();
    }
    for (SaveHandle& handle : handles) {
      EXPECT_OK(handle.WaitCommitted(kLong)) << rank;
    }
  });
  ExpectStore({2, 3, 4}, kWorld);
}

// The disk of one host is full: no rank has the step, all are told why, and
// once there is room again they go on.
TEST_F(RanksBadRankTest, AFullDiskOnOneHost) {
  for (int full = 0; full < kWorld; ++full) {
    TempDir dir;
    const std::string path = dir / "store";
    FaultCounts counts;
    const auto disk = std::make_shared<FaultFs>("", &counts);
    OnAll(kWorld, [&](int rank) {
      RankOptions options = Options(rank, kWorld);
      options.deadline = absl::Seconds(5);  // It cannot say that it fails.
      absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
          path, options, rank == full ? disk : nullptr);
      ASSERT_OK(group);
      ASSERT_OK(SaveAll(*group, 1));
      const auto big = [&](std::int64_t step) {
        const Bytes rows = RandomBytes(4 << 20, rank + step);
        StepBuilder builder = group->Begin(step);
        builder.Put("w", Array(DType::kUint8, {4 << 20}, rows));
        builder.SetPerRank("big");
        builder.Put("big/" + std::to_string(rank),
                    Array(DType::kUint8, {4 << 20}, rows));
        return std::move(builder).Commit().WaitCommitted(kLong);
      };
      if (rank == full) {
        disk->Arm(
            {{.kinds = Bit(CallKind::kWrite) | Bit(CallKind::kPwrite) |
                       Bit(CallKind::kAllocate),
              .classes = Bit(FileClass::kStaging) | Bit(FileClass::kJournal),
              .error = ENOSPC,
              .sticky = true}});
      }
      EXPECT_FALSE(big(2).ok()) << rank;
      if (rank == full) disk->Disarm();
      // The first that are saved after it, by all.
      EXPECT_OK(SaveAll(*group, 3)) << rank << " " << full;
      EXPECT_OK(group->Close());
    });
    EXPECT_GT(counts.fired, 0U);
    absl::StatusOr<Store> store = Store::Open(path, ToRead(QuietOptions()));
    ASSERT_OK(store);
    std::vector<std::int64_t> steps;
    const std::vector<StepInfo> listed = store->Steps().value();
    for (const StepInfo& info : listed) steps.push_back(info.step);
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 3})) << full;
    ExpectStep(*store, 1, kWorld);
    ExpectStep(*store, 3, kWorld);
  }
}

// A child that was forked off is no rank: its calls are refused, and the group
// of its parent goes on.
TEST_F(RanksBadRankTest, AForkOfARank) {
  InGroup(2, [&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    for (int forking = 0; forking < 2; ++forking) {
      if (group.rank() == forking) {
        const pid_t child = fork();
        if (child == 0) {
          int code = 0;
          {
            StepBuilder builder = group.Begin(2);
            builder.PutInt("epoch", 7);
            const absl::Status saved =
                std::move(builder).Commit().WaitCommitted(absl::Seconds(5));
            code |= absl::IsFailedPrecondition(saved) ? 0 : 1;
            code |= absl::IsFailedPrecondition(group.Flush()) ? 0 : 2;
            code |= absl::IsFailedPrecondition(group.Close()) ? 0 : 4;
            const RankGroup gone = std::move(group);
          }
          _exit(code);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << group.rank() << ": " << status;
      }
      ASSERT_OK(SaveAll(group, 2 + forking));
    }
  });
  ExpectStore({1, 2, 3}, 2);
}

}  // namespace
}  // namespace ckptree::testing
