// SPDX-License-Identifier: Apache-2.0

#include "core/process/thread_limit.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ckptree::internal {
namespace {

constexpr int kThreads = 4;

// Counts who is at work at once.
class Meeting {
 public:
  // Waits until `wanted` are inside; only a failure waits so long.
  void Enter(int wanted) {
    const absl::MutexLock lock(&mu_);
    most_ = std::max(most_, ++inside_);
    const auto met = [&] { return most_ >= wanted; };
    mu_.AwaitWithTimeout(absl::Condition(&met), absl::Seconds(30));
  }
  void Leave() {
    const absl::MutexLock lock(&mu_);
    --inside_;
  }
  int most() const {
    const absl::MutexLock lock(&mu_);
    return most_;
  }

 private:
  mutable absl::Mutex mu_;
  int inside_ = 0;
  int most_ = 0;
};

// The most that were at work at once, of kThreads that do a hundred pieces
// each; each waits for the first time that `wanted` meet.
int AtOnce(ThreadLimit* limit, int wanted) {
  Meeting meeting;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        const ThreadLimit::Piece piece(limit);
        meeting.Enter(wanted);
        meeting.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return meeting.most();
}

TEST(ThreadLimitTest, WithoutOneAllAreAtWork) {
  EXPECT_EQ(AtOnce(nullptr, kThreads), kThreads);
  ThreadLimit limit;
  EXPECT_EQ(AtOnce(&limit, kThreads), kThreads);
}

TEST(ThreadLimitTest, NoMoreThanTheLimitAreAtWork) {
  for (const int most : {1, 2, 3}) {
    ThreadLimit limit;
    limit.Set(most);
    EXPECT_EQ(AtOnce(&limit, most), most);
  }
}

TEST(ThreadLimitTest, WhoSleepsWakesWhenItIsLifted) {
  ThreadLimit limit;
  limit.Set(1);
  Meeting meeting;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const ThreadLimit::Piece piece(&limit);
      // The first stays inside until all are there.
      meeting.Enter(kThreads);
    });
  }
  limit.Lift();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meeting.most(), kThreads);
}

TEST(ThreadLimitTest, ItIsLiftedForGood) {
  ThreadLimit limit;
  limit.Lift();
  limit.Set(1);
  EXPECT_EQ(AtOnce(&limit, kThreads), kThreads);
}

}  // namespace
}  // namespace ckptree::internal
