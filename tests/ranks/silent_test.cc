// SPDX-License-Identifier: Apache-2.0

// A rank that does not hear from the coordinator while that commits.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/ranks/group.h"
#include "gtest/gtest.h"
#include "tests/fault/late_fs.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

constexpr int kWorld = 2;
constexpr absl::Duration kDeadline = absl::Seconds(2);

class RanksSilentTest : public RanksTest {
 protected:
  // Step 1 is saved. Of step 2 the commit is written, and its sync does not
  // return; rank 1 reads nothing of the coordinator until then. `then` is
  // called on rank 0, with what lets the sync go. Returns what rank 1 was told.
  absl::Status SaveInSilence(const std::function<void(LateFs& disk)>& then) {
    const auto disk = std::make_shared<LateFs>();
    const auto client = std::make_shared<LateFs>();
    absl::Notification hidden;
    absl::Status told = absl::UnknownError("nothing was told");
    OnAll(kWorld, [&](int rank) {
      RankOptions options = Options(rank, kWorld);
      options.deadline = kDeadline;
      absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
          path(), options, rank == 0 ? disk : client);
      ASSERT_OK(group);
      ASSERT_OK(SaveAll(*group, 1));
      if (rank == 0) {
        disk->HoldSyncs();
        std::thread other([&] {
          while (disk->held_syncs() == 0) std::this_thread::yield();
          hidden.WaitForNotification();
          // A reader sees it by now.
          absl::StatusOr<Store> reader =
              Store::Open(path(), ToRead(QuietOptions()));
          ASSERT_OK(reader);
          EXPECT_OK(reader->OpenStep(2));
          then(*disk);
        });
        SaveAll(*group, 2).IgnoreError();
        other.join();
      } else {
        const Bytes rows = RowsOf(rank, 2);
        StepBuilder builder = group->Begin(2);
        PutAll(&builder, rank, kWorld, 2, rows);
        SaveHandle handle = std::move(builder).Commit();
        while (handle.Progress().phase != Progress::Phase::kCommitting) {
          ASSERT_FALSE(handle.Done());
          std::this_thread::yield();
        }
        client->Hide("/coordinator");
        hidden.Notify();
        told = handle.WaitCommitted(kLong);
        told_.Notify();
      }
      group->Close().IgnoreError();
    });
    EXPECT_GT(disk->held_syncs(), 0U);
    EXPECT_GT(client->hidden(), 0U);
    return told;
  }

  absl::Notification told_;
};

TEST_F(RanksSilentTest, WhatASyncMayTakeBackIsNotCommitted) {
  const absl::Status told = SaveInSilence([&](LateFs& disk) {
    told_.WaitForNotification();
    disk.LetSyncsGo(/*fail=*/true);
  });
  EXPECT_EQ(told.code(), absl::StatusCode::kUnknown) << told;
}

TEST_F(RanksSilentTest, WhatIsDurableIsCommitted) {
  EXPECT_OK(SaveInSilence([&](LateFs& disk) { disk.LetSyncsGo(false); }));
  ExpectStore({1, 2}, kWorld);
}

// However long a commit takes, who makes it says that it is there.
TEST_F(RanksSilentTest, ALongCommitIsNoSilence) {
  const auto disk = std::make_shared<LateFs>();
  OnAll(kWorld, [&](int rank) {
    RankOptions options = Options(rank, kWorld);
    options.deadline = absl::Milliseconds(500);
    absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
        path(), options, rank == 0 ? disk : nullptr);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    const Bytes rows = RowsOf(rank, 2);
    StepBuilder builder = group->Begin(2);
    PutAll(&builder, rank, kWorld, 2, rows);
    if (rank == 0) disk->HoldSyncs();
    SaveHandle handle = std::move(builder).Commit();
    if (rank == 0) {
      // Four deadlines.
      const absl::Status late = handle.WaitCommitted(absl::Seconds(2));
      EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
      disk->LetSyncsGo(/*fail=*/false);
    }
    EXPECT_OK(handle.WaitCommitted(kLong));
    EXPECT_OK(group->Close());
  });
  EXPECT_GT(disk->held_syncs(), 0U);
  ExpectStore({1, 2}, kWorld);
}

}  // namespace
}  // namespace ckptree::testing
