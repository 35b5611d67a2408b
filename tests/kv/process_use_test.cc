// SPDX-License-Identifier: Apache-2.0

#include "kv/process_use.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ckptree::kv {
namespace {

constexpr unsigned kHangs = 60;  // Seconds that only a hang takes.

// The exit status of a forked child that runs `body`; -1: a signal ended it.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangs);
    _exit(body());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

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
    std::vector<unsigned char> memory(std::size_t{16} << 20);
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
