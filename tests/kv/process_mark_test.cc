// SPDX-License-Identifier: Apache-2.0

#include "kv/process_mark.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testutil/in_child.h"

namespace ckptree::kv {
namespace {

using ckptree::testing::InChild;

// Of a child that is not told by handlers.
pid_t RawFork() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0)); }

TEST(ProcessMarkTest, HoldsInTheProcessThatMadeIt) {
  const ProcessMark first;
  const ProcessMark second;
  EXPECT_TRUE(first.Holds());
  EXPECT_TRUE(second.Holds());
  EXPECT_TRUE(first.Check().ok());
}

TEST(ProcessMarkTest, HoldsInNoChildHoweverItWasMade) {
  const ProcessMark mark;
  const std::string says = absl::StrCat("opened by process ", getpid());
  for (const auto& make :
       {std::function<pid_t()>(&fork), std::function<pid_t()>(&RawFork)}) {
    const int status = InChild(make, [&] {
      const ProcessMark own;
      // Its own holds, and that of its parent does not, also afterwards.
      const bool good = !mark.Holds() && own.Holds() && !mark.Holds() &&
                        std::string(mark.Check().message()).starts_with(says);
      return good ? 7 : 1;
    });
    EXPECT_EQ(status, 7);
    EXPECT_TRUE(mark.Holds());
  }
}

TEST(ProcessMarkTest, AMarkOfAChildHoldsInNoGrandchild) {
  const int status = InChild(&RawFork, [] {
    const ProcessMark own;
    const int inner = InChild(&RawFork, [&] {
      const bool before = own.Holds();  // Before it has one of its own.
      const ProcessMark mine;
      return before || own.Holds() || !mine.Holds() ? 1 : 7;
    });
    return inner == 7 && own.Holds() ? 7 : 1;
  });
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace ckptree::kv
