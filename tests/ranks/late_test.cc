// SPDX-License-Identifier: Apache-2.0

// Ranks over a file system that shows late what the others do.

#include <algorithm>
#include <cstdint>
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

constexpr int kWorld = 3;
constexpr absl::Duration kListing = absl::Milliseconds(300);

// Each rank is a client of its own.
class RanksLateTest : public RanksTest {
 protected:
  void InLateGroup(const std::function<void(RankGroup& group)>& body) {
    std::vector<std::shared_ptr<LateFs>> clients;
    for (int rank = 0; rank < kWorld; ++rank) {
      clients.push_back(std::make_shared<LateFs>());
      // Those who meet have to see each other once.
      clients.back()->Delay(kListing, kListing);
    }
    OnAll(kWorld, [&](int rank) {
      const auto& client = clients[static_cast<std::size_t>(rank)];
      absl::StatusOr<RankGroup> group =
          internal::RankGroupPeer::Open(path(), Options(rank, kWorld), client);
      ASSERT_OK(group);
      // A name that was missing once is never seen again.
      client->Delay(absl::InfiniteDuration(), kListing);
      body(*group);
      EXPECT_OK(group->Close());
    });
    for (const auto& client : clients) {
      missed_names_ += client->missed_names();
      old_lists_ += client->old_lists();
    }
  }

  std::uint64_t missed_names_ = 0;
  std::uint64_t old_lists_ = 0;
};

TEST_F(RanksLateTest, StepsAreSeenByAllWhoWereTold) {
  constexpr std::int64_t kSteps = 12;
  InLateGroup([&](RankGroup& group) {
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      ASSERT_OK(SaveAll(group, step)) << step;
      // As training goes on from what was saved, on any rank.
      ExpectStep(group.store(), step, kWorld);
    }
  });
  // The coordinator's mailbox was looked for before it was there.
  EXPECT_GT(missed_names_ + old_lists_, 0U);
  std::vector<std::int64_t> all;
  for (std::int64_t step = 1; step <= kSteps; ++step) all.push_back(step);
  ExpectStore(all, kWorld);
}

TEST_F(RanksLateTest, HandoffsThatAreFiles) {
  constexpr int kLeaves = 600;  // Too many for a message.
  InLateGroup([&](RankGroup& group) {
    for (std::int64_t step = 1; step <= 3; ++step) {
      const Bytes rows = RowsOf(group.rank(), step);
      StepBuilder builder = group.Begin(step);
      PutAll(&builder, group.rank(), kWorld, step, rows);
      builder.SetPerRank("own");
      const std::string mine = "own/" + std::to_string(group.rank()) + "/";
      for (int leaf = 0; leaf < kLeaves; ++leaf) {
        builder.PutInt(mine + std::to_string(leaf), 1000 * step + leaf);
      }
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
      // What another rank has.
      absl::StatusOr<Step> read = group.store().OpenStep(step);
      ASSERT_OK(read);
      const int other = (group.rank() + 1) % kWorld;
      const std::string theirs = "own/" + std::to_string(other) + "/";
      for (int leaf = 0; leaf < kLeaves; leaf += 97) {
        EXPECT_EQ(*read->Value(theirs + std::to_string(leaf))->Int(),
                  1000 * step + leaf);
      }
    }
  });
}

// What the coordinator saves alone is the base of the others' next part.
TEST_F(RanksLateTest, ABaseThatIsSeenLate) {
  InLateGroup([&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    if (group.rank() == 0) {
      const Bytes all = AllRows(kWorld, 2);
      StepBuilder builder = group.store().Begin(2);
      builder.Put("w", Array(DType::kFloat32, {kRows * kWorld, kColumns}, all));
      builder.PutInt("epoch", 2).PutString("name", "run");
      for (int rank = 0; rank < kWorld; ++rank) {
        builder.PutInt("rng/" + std::to_string(rank), 200 + rank);
      }
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
    }
    ASSERT_OK(SaveAll(group, 3));
    ExpectStep(group.store(), 2, kWorld);
    ExpectStep(group.store(), 3, kWorld);
  });
  ExpectStore({1, 2, 3}, kWorld);
}

// Who learns late that a step was committed does not look for it any more.
TEST_F(RanksLateTest, AStepThatIsGoneBeforeItIsSeen) {
  const auto client = std::make_shared<LateFs>();
  absl::Notification handed_over;
  absl::Notification gone;
  OnAll(kWorld, [&](int rank) {
    absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
        path(), Options(rank, kWorld), rank == 1 ? client : nullptr);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    // The coordinator waits for rank 2, and that for rank 1.
    if (rank == 2) handed_over.WaitForNotification();
    const Bytes rows = RowsOf(rank, 2);
    StepBuilder builder = group->Begin(2);
    PutAll(&builder, rank, kWorld, 2, rows);
    SaveHandle handle = std::move(builder).Commit();
    if (rank == 1) {
      while (handle.Progress().phase != Progress::Phase::kCommitting) {
        ASSERT_FALSE(handle.Done());
        std::this_thread::yield();
      }
      client->Hide("/coordinator");
      handed_over.Notify();
      gone.WaitForNotification();
      client->Hide("");
    }
    // Less than it waits for what a shared folder shows late.
    EXPECT_OK(handle.WaitCommitted(absl::Seconds(30)));
    if (rank == 0) {
      EXPECT_OK(group->store().Delete(2));
      EXPECT_OK(group->store().Collect());
      gone.Notify();
    }
    ASSERT_OK(SaveAll(*group, 3));
    ExpectStep(group->store(), 3, kWorld);
    EXPECT_OK(group->Close());
  });
  EXPECT_GT(client->hidden(), 0U);
  ExpectStore({1, 3}, kWorld);
}

}  // namespace
}  // namespace ckptree::testing
