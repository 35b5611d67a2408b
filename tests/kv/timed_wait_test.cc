// SPDX-License-Identifier: Apache-2.0

// Waits with an end while the time of day is set back, and what an end may do.

#include "kv/timed_wait.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kv/monotonic.h"
#include "tests/testutil/clock_of_waits.h"

namespace ckptree::kv {
namespace {

constexpr absl::Duration kEnd = absl::Milliseconds(200);
constexpr absl::Duration kPatience = absl::Seconds(30);

class TimedWaitTest : public ::testing::Test {
 protected:
  void TearDown() override { testing::clock_offset_seconds = 0; }
};

constexpr bool kNever = false;

// Begins a wait, sets the clock back under it, and tells how long it was.
template <typename Wait>
absl::Duration SetBackDuring(Wait wait) {
  testing::clock_offset_seconds = 0;
  const int before = testing::waits_by_clock;
  std::atomic<bool> waits = false;
  const absl::Time begun = MonotonicNow();
  std::jthread setter([&] {
    while (!waits) std::this_thread::yield();
    // It is in its wait where that is one by the time of day.
    while (testing::waits_by_clock == before &&
           MonotonicNow() - begun < kEnd / 2) {
      std::this_thread::yield();
    }
    testing::clock_offset_seconds = -60;
  });
  waits = true;
  wait();
  return MonotonicNow() - begun;
}

TEST_F(TimedWaitTest, OfAbseilLastsUntilTheClockIsThereAgain) {
  absl::Mutex mu;
  const absl::Duration took = SetBackDuring([&] {
    const absl::MutexLock lock(&mu);
    std::jthread end([] {
      absl::SleepFor(3 * kEnd);
      testing::clock_offset_seconds = 0;
    });
    mu.AwaitWithTimeout(absl::Condition(&kNever), kEnd);
  });
  EXPECT_GE(took, 2 * kEnd);
}

TEST_F(TimedWaitTest, EndsInTimeWhileTheClockIsSetBack) {
  absl::Mutex mu;
  const absl::Duration took = SetBackDuring([&] {
    const absl::MutexLock lock(&mu);
    EXPECT_FALSE(AwaitFor(mu, absl::Condition(&kNever), kEnd));
    mu.AssertHeld();
  });
  EXPECT_GE(took, kEnd);
  EXPECT_LT(took, kPatience);
}

TEST_F(TimedWaitTest, EndsWhenTheConditionHolds) {
  absl::Mutex mu;
  bool holds = false;
  std::jthread other([&] {
    const absl::MutexLock lock(&mu);
    holds = true;
  });
  const absl::MutexLock lock(&mu);
  EXPECT_TRUE(AwaitFor(mu, absl::Condition(&holds), absl::Hours(1)));
  EXPECT_TRUE(AwaitFor(mu, absl::Condition(&holds), -absl::Seconds(1)));
  EXPECT_FALSE(AwaitUntil(mu, absl::Condition(&kNever), absl::InfinitePast()));
  EXPECT_TRUE(AwaitUntil(mu, absl::Condition(&holds), absl::InfiniteFuture()));
}

// A later end is no reason to miss an earlier one.
TEST_F(TimedWaitTest, EachEndsAtItsOwnTime) {
  absl::Mutex mu;
  bool over = false;
  std::jthread late([&] {
    const absl::MutexLock lock(&mu);
    AwaitFor(mu, absl::Condition(&over), absl::Hours(1));
  });
  const absl::MutexLock lock(&mu);
  EXPECT_FALSE(AwaitFor(mu, absl::Condition(&kNever), kEnd));
  over = true;
}

// The mutex may go as soon as a wait on it has ended, at whatever moment.
TEST_F(TimedWaitTest, NobodyTouchesTheMutexBehindAWait) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        const auto mu = std::make_unique<absl::Mutex>();
        bool holds = false;
        std::jthread other([&] {
          if ((i + t) % 2 == 0) absl::SleepFor(absl::Microseconds(50));
          const absl::MutexLock lock(mu.get());
          holds = true;
        });
        mu->Lock();
        AwaitFor(*mu, absl::Condition(&holds),
                 absl::Microseconds(20 + 3 * (i % 30)));
        mu->Unlock();
        other.join();
      }
    });
  }
}

TEST_F(TimedWaitTest, WaitsInAForkedChild) {
  absl::Mutex mu;
  {
    const absl::MutexLock lock(&mu);
    AwaitFor(mu, absl::Condition(&kNever), absl::Milliseconds(1));
  }
  const pid_t child = fork();
  if (child == 0) {
    absl::Mutex own;
    const absl::MutexLock lock(&own);
    _exit(AwaitFor(own, absl::Condition(&kNever), kEnd) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ckptree::kv
