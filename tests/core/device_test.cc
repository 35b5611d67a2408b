// SPDX-License-Identifier: Apache-2.0

// States on a device: piece by piece through the staging pool.

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/save/staged_content.h"
#include "tests/core/fake_device.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Pair;

constexpr std::size_t kPool = 16 * kChunk;

class DeviceTest : public CoreTest {
 protected:
  void SetUp() override { OpenOn({}); }
  void TearDown() override { store_.reset(); }  // Before the device.

  void OpenOn(FakeDevice::Before before) {
    StoreOptions options = Options();
    options.threads = 4;  // Some of them wait for a test.
    options.staging_bytes = kPool;
    options.host_allocator = device_.Allocator();
    device_.SetBefore(std::move(before));
    Open(std::move(options));
  }

  // Twelve times what the pool holds, in arrays of every size.
  StepBuilder BeginLarge(std::int64_t step) {
    StepBuilder builder = store_->Begin(step);
    for (const std::size_t size :
         {std::size_t{10}, std::size_t{2000}, kChunk - 3, 5 * kChunk + 7,
          60 * kChunk, 120 * kChunk}) {
      const std::size_t number = bytes_.size();
      bytes_.push_back(RandomBytes(size, number));
      builder.Put(absl::StrCat("w", number), device_.Put(bytes_.back()));
    }
    return builder;
  }
  void ExpectSaved(std::int64_t step, std::size_t first = 0) {
    for (std::size_t i = first; i < first + 6; ++i) {
      const Bytes read = Read(AtStep(step), absl::StrCat("w", i));
      EXPECT_TRUE(read == bytes_[i]) << i;
    }
  }
  void ExpectPoolKept() {
    EXPECT_LE(device_.most_pinned(), kPool);
    // Where the save overtakes the copies it takes one for itself, into memory
    // of its thread.
    EXPECT_LE(device_.most_unpinned_copies(), 4);
    // A thread of a save that failed may just have got room for a piece that
    // nobody needs any more: it gives that back, and copies nothing.
    const absl::Time end = absl::Now() + kLong;
    while (store_->GetStats().staging_bytes_in_use > 0 && absl::Now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(store_->GetStats().staging_bytes_in_use, 0u);
  }

  FakeDevice device_;
  std::vector<Bytes> bytes_;
};

TEST_F(DeviceTest, EachByteIsCopiedOnceAndThePoolIsNeverExceeded) {
  SaveHandle save = BeginLarge(1).Commit();
  device_.Wipe();  // It is the caller's again.
  EXPECT_OK(save.WaitCommitted(kLong));
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(device_.TimesCopied(i), Pair(1, 1)) << i;
  }
  ExpectPoolKept();
  EXPECT_GT(device_.most_pinned(), kPool / 2);
  ExpectSaved(1);
  ExpectClean();
}

// Statistics and digests are of the copies: what did not change is not written,
// and nothing is copied for that a second time.
TEST_F(DeviceTest, WhatDidNotChangeIsCopiedToCompareAndNotWritten) {
  EXPECT_OK(Commit(BeginLarge(1)));
  StepBuilder builder = store_->Begin(2);
  for (std::size_t i = 0; i < 6; ++i) {
    builder.Put(absl::StrCat("w", i), device_.Put(bytes_[i]));
  }
  EXPECT_OK(Commit(std::move(builder)));
  for (int i = 6; i < 12; ++i) {
    EXPECT_THAT(device_.TimesCopied(i), Pair(1, 1)) << i;
  }
  EXPECT_EQ(store_->Steps()->at(1).new_bytes, 0u);
  ExpectPoolKept();
}

TEST_F(DeviceTest, ACopyThatFailsNamesTheLeafAndLeavesTheStoreAsItWas) {
  Bytes kept = RandomBytes(3 * kChunk, 9);
  EXPECT_OK(Save(1, kept));
  // The first piece, one that the pool has no room for at first, the last one.
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{60 * kChunk},
                                 std::uint64_t{119 * kChunk}}) {
    std::atomic<int> failed{0};
    const int last = static_cast<int>(bytes_.size()) + 5;
    OpenOn([&, last](int array, std::uint64_t offset) -> absl::Status {
      if (array != last || offset != at) return absl::OkStatus();
      ++failed;
      return absl::DataLossError("row 7 has two flipped bits");
    });
    SaveHandle save = BeginLarge(2).Commit();
    EXPECT_THAT(save.WaitCommitted(kLong),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(absl::StrCat(
                             "w", last, ": its copy function failed: row 7"))));
    EXPECT_GT(failed, 0) << at;
    EXPECT_THAT(StepNumbers(), ElementsAre(1));
    EXPECT_TRUE(Read(AtStep(1)) == kept);
    ExpectPoolKept();
    ExpectClean();
  }
  const std::size_t first = bytes_.size();
  OpenOn({});
  EXPECT_OK(Commit(BeginLarge(3)));
  ExpectSaved(3, first);
}

TEST_F(DeviceTest, ASaveThatIsCancelledGivesThePoolBack) {
  absl::Notification begun, go;
  std::atomic<int> copies{0};
  OpenOn([&](int, std::uint64_t) {
    // The pool is full by then, and there is one that waits for room.
    if (++copies == 40) begun.Notify();
    if (copies >= 40) go.WaitForNotification();
    return absl::OkStatus();
  });
  SaveHandle save = BeginLarge(1).Submit();
  begun.WaitForNotification();
  save.Cancel();
  go.Notify();
  EXPECT_THAT(save.WaitCommitted(kLong),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(copies, 187);  // Of all there are.
  ExpectPoolKept();
  device_.SetBefore({});
  const std::size_t first = bytes_.size();
  EXPECT_OK(Commit(BeginLarge(2)));
  ExpectSaved(2, first);
}

TEST_F(DeviceTest, TwoSavesAtOnceShareThePool) {
  absl::Notification go;
  std::atomic<int> copies{0};
  OpenOn([&](int array, std::uint64_t) {
    // The smallest ones are copied by Submit() itself.
    if (array % 6 > 0 && ++copies > 8) go.WaitForNotification();
    return absl::OkStatus();
  });
  StepBuilder one = BeginLarge(1), two = BeginLarge(2);
  SaveHandle first = std::move(one).Submit();
  SaveHandle second = std::move(two).Submit();
  EXPECT_FALSE(first.Staged());
  EXPECT_FALSE(second.Staged());
  go.Notify();
  EXPECT_OK(second.WaitStaged(kLong));
  EXPECT_OK(first.WaitCommitted(kLong));
  EXPECT_OK(second.WaitCommitted(kLong));
  for (int i = 0; i < 12; ++i) {
    // Small ones that the save looks at twice are copied twice where it
    // overtakes their copies, and the pool is full.
    const int most = i % 6 == 1 ? 2 : 1;
    EXPECT_THAT(device_.TimesCopied(i), Pair(Ge(1), Le(most))) << i;
  }
  ExpectPoolKept();
  ExpectSaved(1, 0);
  ExpectSaved(2, 6);
}

// A save behind one that is held up is copied as far as the pool goes, and on
// as soon as that has room again.
TEST_F(DeviceTest, CopiesGoOnAsThePoolHasRoomAgain) {
  absl::Notification go;
  StepBuilder gate = store_->Begin(1);
  gate.Put("gate", WaitingFor(go), Ownership::kBorrow);
  SaveHandle held = std::move(gate).Submit();
  SaveHandle save = BeginLarge(2).Submit();
  EXPECT_THAT(save.WaitStaged(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  go.Notify();
  EXPECT_OK(held.WaitCommitted(kLong));
  EXPECT_OK(save.WaitCommitted(kLong));
  ExpectPoolKept();
  ExpectSaved(2);
}

// What is copied while another piece is worked on, and who waits for room.
class FetchTest : public DeviceTest {
 protected:
  // Two pieces, and a pool that has room for one of them.
  void Fill(internal::StagedContent* content) {
    const auto stage = [content, this](std::size_t piece) {
      status_[piece] = content->StageFetched(piece);
      done_[piece].Notify();
    };
    content->StageInline().IgnoreError();
    first_ = std::thread(stage, 0);
    done_[0].WaitForNotification();
    second_ = std::thread(stage, 1);
  }
  internal::StepContent Content() {
    internal::ContentBuilder builder(kChunk);
    EXPECT_OK(builder.AddTensor(
        At("w"), device_.Put(RandomBytes(2 * kChunk, 1)), Ownership::kCopy));
    return std::move(builder).Finish().value();
  }
  void Join() {
    first_.join();
    second_.join();
  }

  StagingPool pool_{kChunk + 4096};
  std::thread first_, second_;
  absl::Notification done_[2];
  absl::Status status_[2];
};

TEST_F(FetchTest, ThePieceThatIsDoneMakesRoomForTheNext) {
  internal::StagedContent content(Content(), kChunk, &pool_, [] {});
  ASSERT_EQ(content.fetched_count(), 2u);
  Fill(&content);
  EXPECT_FALSE(done_[1].HasBeenNotified());
  content.Take(0);
  EXPECT_OK(content.FetchTaken(0));
  std::vector<std::byte> scratch;
  EXPECT_EQ(content.Bytes(0, 0, &scratch)->size(), kChunk);
  EXPECT_FALSE(done_[1].HasBeenNotified());
  content.Release(0);
  Join();
  EXPECT_OK(status_[1]);
  content.Take(1);
  EXPECT_OK(content.FetchTaken(1));
  EXPECT_EQ(content.Bytes(1, 0, &scratch)->size(), kChunk);
  EXPECT_TRUE(scratch.empty());
  EXPECT_THAT(device_.TimesCopied(0), Pair(1, 1));
  content.Release(1);
  EXPECT_EQ(content.staged_bytes(), 2 * kChunk);
}

TEST_F(FetchTest, WhoWaitsForRoomHearsThatTheSaveIsOver) {
  absl::StatusOr<StagingPool::Lease> other = pool_.Acquire(kChunk);
  ASSERT_OK(other);
  internal::StagedContent content(Content(), kChunk, &pool_, [] {});
  std::thread waiting([&] { status_[0] = content.StageFetched(0); });
  content.Abandon();
  waiting.join();
  EXPECT_THAT(status_[0],
              ::testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kCancelled)));
  EXPECT_EQ(device_.TimesCopied(0), std::pair(0, 0));
}

// The save itself fetches what it meets first, into the pool.
TEST_F(FetchTest, WhatTheSaveOvertakesIsCopiedOnce) {
  internal::StagedContent content(Content(), kChunk, &pool_, [] {});
  std::vector<std::byte> scratch;
  for (std::size_t piece : {0u, 1u}) {
    content.Take(piece);
    EXPECT_OK(content.FetchTaken(piece));
    EXPECT_GT(pool_.in_use(), kChunk);
    EXPECT_OK(content.StageFetched(piece));
    EXPECT_EQ(content.Bytes(piece, 0, &scratch)->size(), kChunk);
    content.Release(piece);
  }
  EXPECT_TRUE(scratch.empty());
  EXPECT_THAT(device_.TimesCopied(0), Pair(1, 1));
}

}  // namespace
}  // namespace ckptree::testing
