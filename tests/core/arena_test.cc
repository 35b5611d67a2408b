// SPDX-License-Identifier: Apache-2.0

#include "core/process/arena.h"

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kv/process_use.h"
#include "tests/testutil/in_child.h"

namespace ckptree::internal {
namespace {

using ckptree::testing::InChild;

constexpr std::size_t kCount = 1000;
constexpr std::size_t kGrain = 7;

// Calls of each number below kCount, by all that an arena has.
struct Calls {
  std::vector<std::atomic<int>> of = std::vector<std::atomic<int>>(kCount);
  std::atomic<bool> elsewhere = false;  // On another thread than `caller`.
  const std::thread::id caller = std::this_thread::get_id();

  void Note(std::size_t i) {
    ++of[i];
    if (std::this_thread::get_id() != caller) elsewhere = true;
  }

  bool Each(int times) const {
    for (const std::atomic<int>& calls : of) {
      if (calls != times) return false;
    }
    return true;
  }
};

void CallAll(Arena* arena, Calls* calls) {
  arena->execute([&] {
    ForEach(0, kCount, [&](std::size_t i) { calls->Note(i); });
    ForEachRange(kCount, kGrain, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) calls->Note(i);
    });
    Isolated([&] {
      TaskGroup tasks;
      for (std::size_t i = 0; i < kCount; ++i) {
        tasks.run([calls, i] { calls->Note(i); });
      }
      tasks.wait();
    });
  });
}

TEST(ArenaTest, CallsEachOnce) {
  for (const int slots : {1, 4}) {
    Arena arena(slots);
    Calls calls;
    CallAll(&arena, &calls);
    EXPECT_TRUE(calls.Each(3)) << slots;
    EXPECT_GE(arena.max_concurrency(), slots);
  }
}

TEST(ArenaTest, NothingIsCalledOfAnEmptyRange) {
  Arena arena(2);
  int calls = 0;
  arena.execute([&] {
    ForEach(5, 5, [&](std::size_t) { ++calls; });
    ForEachRange(0, 3, [&](std::size_t, std::size_t) { ++calls; });
  });
  EXPECT_EQ(calls, 0);
}

TEST(ArenaTest, TheCallerDoesAllInAForkedChild) {
  kv::NoteUse();
  Arena used(4);
  Calls before;
  CallAll(&used, &before);
  const int status = InChild([&] {
    Arena arena(4);
    Calls calls;
    CallAll(&arena, &calls);
    // Nor is one of the parent's entered.
    CallAll(&used, &calls);
    const bool good = calls.Each(6) && !calls.elsewhere && ThreadsHere() == 1;
    return good ? 7 : 1;
  });
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace ckptree::internal
