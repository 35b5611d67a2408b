// SPDX-License-Identifier: Apache-2.0

#include "core/save/staging_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace ckptree {
namespace {

constexpr std::size_t kKiB = 1 << 10;
constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kSlack = 4 * kKiB;

// Counts what is allocated, and fails on request.
struct CountingAllocator {
  std::atomic<int> allocations = 0;
  std::atomic<std::size_t> bytes = 0;
  std::atomic<std::size_t> most_bytes = 0;
  std::atomic<std::size_t> refuse_above =
      std::numeric_limits<std::size_t>::max();

  HostAllocator Functions() {
    return {
        [this](std::size_t n) -> void* {
          if (bytes + n > refuse_above) return nullptr;
          ++allocations;
          const std::size_t now = bytes += n;
          std::size_t most = most_bytes;
          while (most < now && !most_bytes.compare_exchange_weak(most, now)) {
          }
          return std::malloc(n);
        },
        [this](void* memory, std::size_t n) {
          bytes -= n;
          std::free(memory);
        }};
  }
};

TEST(StagingPool, LendsAlignedBytesWithAPrefix) {
  StagingPool pool(64 * kMiB);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, 64 * kKiB, 64 * kKiB + 1, 16 * kMiB,
        16 * kMiB + 1, 20 * kMiB}) {
    absl::StatusOr<StagingPool::Lease> lease = pool.Acquire(bytes);
    ASSERT_TRUE(lease.ok());
    const std::span<std::byte> span = lease->bytes();
    EXPECT_EQ(span.size(), bytes);
    EXPECT_EQ(
        reinterpret_cast<std::uintptr_t>(span.data()) % StagingPool::kAlignment,
        0u);
    std::memset(span.data() - StagingPool::kPrefixBytes, 7,
                StagingPool::kPrefixBytes + bytes);
    EXPECT_GE(pool.in_use(), bytes);
  }
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(StagingPool, LendsAFreedBufferAgain) {
  CountingAllocator counting;
  StagingPool pool(kMiB, counting.Functions());
  const std::byte* first = nullptr;
  {
    const auto lease = pool.Acquire(100 * kKiB);
    first = lease->bytes().data();
  }
  EXPECT_EQ(pool.reserved(), 128 * kKiB + kSlack);
  const auto lease = pool.Acquire(128 * kKiB);
  EXPECT_EQ(lease->bytes().data(), first);
  EXPECT_EQ(counting.allocations, 1);
}

TEST(StagingPool, RoundsSizesByAtMostHalf) {
  StagingPool pool(64 * kMiB);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t bytes = 64 * kKiB + random() % (20 * kMiB);
    const auto lease = pool.Acquire(bytes);
    ASSERT_LE(pool.in_use(), bytes + bytes / 2 + 2 * kSlack);
  }
}

TEST(StagingPool, EvictsOtherSizesToStayWithinTheLimit) {
  CountingAllocator counting;
  StagingPool pool(kMiB, counting.Functions());
  { const auto lease = pool.Acquire(512 * kKiB); }
  { const auto lease = pool.Acquire(256 * kKiB); }
  { const auto lease = pool.Acquire(768 * kKiB); }
  EXPECT_LE(pool.reserved(), kMiB);
  EXPECT_LE(counting.most_bytes, kMiB);
  EXPECT_EQ(counting.bytes, pool.reserved());
  pool.Trim();
  EXPECT_EQ(pool.reserved(), 0u);
  EXPECT_EQ(counting.bytes, 0u);
}

TEST(StagingPool, FreesEverythingInTheEnd) {
  CountingAllocator counting;
  {
    StagingPool pool(kMiB, counting.Functions());
    const auto a = pool.Acquire(1);
    const auto b = pool.Acquire(100 * kKiB);
  }
  EXPECT_EQ(counting.bytes, 0u);
}

TEST(StagingPool, GrantsARequestAboveTheLimitAlone) {
  CountingAllocator counting;
  StagingPool pool(kMiB, counting.Functions());
  {
    absl::StatusOr<StagingPool::Lease> large = pool.Acquire(3 * kMiB);
    ASSERT_TRUE(large.ok());
    EXPECT_EQ(large->bytes().size(), 3 * kMiB);
    EXPECT_FALSE(pool.TryAcquire(1).has_value());
  }
  // And does not keep it.
  EXPECT_EQ(pool.reserved(), 0u);
  EXPECT_TRUE(pool.TryAcquire(1).has_value());
}

TEST(StagingPool, WaitsUntilSpaceComesBack) {
  StagingPool pool(kMiB);
  auto held = pool.Acquire(700 * kKiB);
  absl::Notification granted;
  std::thread waiter([&] {
    EXPECT_TRUE(pool.Acquire(700 * kKiB).ok());
    granted.Notify();
  });
  EXPECT_FALSE(granted.HasBeenNotified());
  held->Release();
  EXPECT_FALSE(*held);
  granted.WaitForNotification();
  waiter.join();
}

TEST(StagingPool, GivesUpAtTheDeadline) {
  StagingPool pool(kMiB);
  const auto held = pool.Acquire(700 * kKiB);
  EXPECT_EQ(pool.Acquire(700 * kKiB, absl::InfinitePast()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pool.Acquire(700 * kKiB, absl::Now() + absl::Milliseconds(5))
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  // Space that is there is lent even past the deadline.
  EXPECT_TRUE(pool.Acquire(1, absl::InfinitePast()).ok());
  EXPECT_FALSE(pool.TryAcquire(700 * kKiB).has_value());
}

TEST(StagingPool, StopsWaitingWhenCancelled) {
  StagingPool pool(kMiB);
  const auto held = pool.Acquire(700 * kKiB);
  std::atomic<bool> cancelled = false;
  absl::Notification started;
  std::thread waiter([&] {
    started.Notify();
    EXPECT_EQ(pool.Acquire(700 * kKiB, absl::InfiniteFuture(), &cancelled)
                  .status()
                  .code(),
              absl::StatusCode::kCancelled);
  });
  started.WaitForNotification();
  cancelled = true;
  pool.WakeCancelled();
  waiter.join();
  // Who gave up holds nobody back.
  EXPECT_TRUE(pool.TryAcquire(1).has_value());
}

TEST(StagingPool, DoesNotLetSmallRequestsPassALargeOne) {
  StagingPool pool(kMiB);
  auto held = pool.Acquire(64 * kKiB);
  std::thread large([&] { EXPECT_TRUE(pool.Acquire(2 * kMiB).ok()); });
  // There is space for this until the large one waits.
  while (pool.TryAcquire(1).has_value()) std::this_thread::yield();
  held->Release();
  large.join();
  EXPECT_TRUE(pool.TryAcquire(1).has_value());
}

TEST(StagingPool, ReportsThatThereIsNoMemory) {
  CountingAllocator counting;
  counting.refuse_above = 300 * kKiB;
  StagingPool pool(16 * kMiB, counting.Functions());
  { const auto kept = pool.Acquire(128 * kKiB); }
  EXPECT_GT(pool.reserved(), 0u);
  // Kept buffers are given up for it first.
  EXPECT_TRUE(pool.Acquire(256 * kKiB).ok());
  const auto held = pool.Acquire(1);
  const std::size_t before = pool.in_use();
  EXPECT_EQ(pool.Acquire(kMiB).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(pool.TryAcquire(kMiB).has_value());
  EXPECT_EQ(pool.in_use(), before);
  EXPECT_EQ(pool.reserved(), before);
  EXPECT_EQ(
      pool.Acquire(std::numeric_limits<std::size_t>::max()).status().code(),
      absl::StatusCode::kResourceExhausted);
}

TEST(StagingPool, StaysWithinTheLimitUnderManyThreads) {
  CountingAllocator counting;
  {
    StagingPool pool(2 * kMiB, counting.Functions());
    std::atomic<int> large = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t);
        for (int i = 0; i < 400; ++i) {
          // Some are above the limit.
          const bool above = random() % 50 == 0;
          const std::size_t bytes = above ? 3 * kMiB : random() % (900 * kKiB);
          absl::StatusOr<StagingPool::Lease> lease = pool.Acquire(bytes);
          ASSERT_TRUE(lease.ok());
          large += above;
          if (above) {
            EXPECT_EQ(large, 1);
          }
          EXPECT_LE(pool.reserved(), 3 * kMiB + kSlack);
          const std::span<std::byte> span = lease->bytes();
          const auto mark = static_cast<std::byte>(t);
          if (!span.empty()) span.front() = span.back() = mark;
          std::this_thread::yield();
          if (!span.empty()) {
            ASSERT_EQ(span.front(), mark);
            ASSERT_EQ(span.back(), mark);
          }
          large -= above;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.in_use(), 0u);
    EXPECT_LE(pool.reserved(), 2 * kMiB);
  }
  EXPECT_EQ(counting.bytes, 0u);
}

}  // namespace
}  // namespace ckptree
