// SPDX-License-Identifier: Apache-2.0

#include "core/process/allowed_threads.h"

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"
#include "tbb/partitioner.h"
#include "tbb/task_arena.h"

namespace ckptree::internal {
namespace {

// How many of `threads` tasks were at work at once in an arena of that many;
// each waits for all others.
int AtOnce(int threads) {
  tbb::task_arena arena(threads);
  absl::Mutex mu;
  int most = 0;
  int inside = 0;
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int>(0, threads, 1),
        [&](const tbb::blocked_range<int>&) {
          const auto all = [&] { return most == threads; };
          const absl::MutexLock lock(&mu);
          most = std::max(most, ++inside);
          // Only a failure waits so long.
          mu.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(30));
          --inside;
        },
        tbb::simple_partitioner());
  });
  return most;
}

TEST(AllowThreadsTest, AnArenaHasMoreThanThereAreProcessors) {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  AllowThreads(2 * processors);
  EXPECT_EQ(AtOnce(2 * processors), 2 * processors);
  // More than before; and less takes nothing away.
  AllowThreads(4 * processors);
  AllowThreads(1);
  AllowThreads(0);
  EXPECT_EQ(AtOnce(4 * processors), 4 * processors);
}

}  // namespace
}  // namespace ckptree::internal
