// SPDX-License-Identifier: Apache-2.0

// Programs that end with an open store: exit_program.cc.

#include <sys/wait.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

class ExitTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Directory() const { return dir_ / "store"; }

  // Its exit code; that of a program which a signal ended, as a shell has it.
  // One of the ways is a leak.
  static int Run(const std::string& way, const std::string& directory) {
    const int status = std::system(
        absl::StrFormat(
            "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" %s %s %s",
            CKPTREE_EXIT_PROGRAM, way, directory)
            .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  TempDir dir_;
};

TEST_P(ExitTest, WhatWasSavedIsThereAndTheProgramEndsWell) {
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(Directory(), {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    builder.PutInt("a", 1);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted());
    ASSERT_OK(store.Close());
  }
  const std::string way = GetParam();
  EXPECT_EQ(Run(way, Directory()), 0);
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(Directory(), {.create_if_missing = false}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  const bool saves = way != "reader";
  ASSERT_EQ(steps.size(), saves ? 2 : 1);
  if (!saves) return;
  ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(2));
  Bytes want(std::size_t{32} << 20);
  for (std::size_t i = 0; i < want.size(); ++i) {
    want[i] = static_cast<std::byte>((i * 2654435761U) >> 11);
  }
  ASSERT_OK_AND_ASSIGN(const LeafValue read, step.Value("w"));
  EXPECT_TRUE(read.bytes == want);
}

INSTANTIATE_TEST_SUITE_P(Ways, ExitTest,
                         ::testing::Values("global", "singleton", "leaked",
                                           "local", "thread", "forked",
                                           "manager", "reader", "closed",
                                           "late"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ckptree::testing
