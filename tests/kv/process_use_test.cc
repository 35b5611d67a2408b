// SPDX-License-Identifier: Apache-2.0

#include "kv/process_use.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testutil/in_child.h"

namespace ckptree::kv {
namespace {

using ckptree::testing::InChild;

TEST(ProcessUseTest, AChildKnowsThatItWasForked) {
  NoteUse();
  EXPECT_FALSE(WasForked());
  const int status = InChild([] {
    const int below = InChild([] { return WasForked() ? 5 : 1; });
    NoteUse();  // A store of its own changes nothing.
    return WasForked() && below == 5 ? 7 : 1;
  });
  EXPECT_EQ(status, 7);
  EXPECT_FALSE(WasForked());
}

TEST(ProcessUseTest, AForkWaitsForWhoHoldsIt) {
  NoteUse();
  std::atomic<bool> holds = false;
  std::atomic<bool> forks = false;
  std::atomic<bool> done = false;
  std::thread other([&] {
    const ForkHold hold;
    holds = true;
    while (!forks) std::this_thread::yield();
    // Longer than a fork takes, and much less than it waits at most.
    std::vector<unsigned char> memory(std::size_t{1} << 20);
    for (int i = 0; i < 4; ++i) {
      for (unsigned char& byte : memory) ++byte;
    }
    done = memory[0] == 4;
  });
  while (!holds) std::this_thread::yield();
  forks = true;
  const int status = InChild([&] { return done ? 7 : 1; });
  other.join();
  EXPECT_EQ(status, 7);
}

TEST(ProcessUseTest, AForkDoesNotWaitForItsOwnThread) {
  NoteUse();
  const ForkHold hold;
  // Of a child: what it has is held there, too, and more can be.
  const int status = InChild([] {
    const ForkHold another;
    return InChild([] {
      const ForkHold third;
      return 7;
    });
  });
  EXPECT_EQ(status, 7);
}

TEST(ProcessUseTest, AForkWaitsForASecondAtMost) {
  NoteUse();
  std::atomic<bool> holds = false;
  std::atomic<bool> forked = false;
  std::thread other([&] {
    const ForkHold hold;
    holds = true;
    while (!forked) std::this_thread::yield();
  });
  while (!holds) std::this_thread::yield();
  // The child has no other threads that would hold it.
  EXPECT_EQ(InChild([] {
              const ForkHold hold;
              return InChild([] { return 7; });
            }),
            7);
  forked = true;
  other.join();
}

}  // namespace
}  // namespace ckptree::kv
