// SPDX-License-Identifier: Apache-2.0

// Ranges of steps, in a store whose steps were saved in another order.

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;

class StepRangeTest : public CommandRunner {};

// Saves are in another order than steps where one was saved anew, or late.
TEST_F(StepRangeTest, FromTheEndCountsTheStepsThatAreListed) {
  const std::string own = scratch_ / "own";
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(own, {.create_if_missing = true}));
    for (const std::int64_t step : {1, 2, 3, 4, 2, 9, 7}) {
      StepBuilder builder = store.Begin(step, {.overwrite = true});
      builder.PutInt("a", step);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  const auto steps = [&](const std::string& range) {
    return Run({"-C", own, "log", range, "--columns", "step", "-o", "csv",
                "--no-header"})
        .out;
  };
  EXPECT_EQ(steps("-2..-1"), "9\n7\n");
  EXPECT_EQ(steps("-3..-3"), "4\n");
  EXPECT_EQ(steps("-6..-5"), "2\n1\n");
  EXPECT_EQ(steps("..-6"), "1\n");
  const Result none = Run({"-C", own, "log", "..-7"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("`-7` is no step: there are 6"));
  EXPECT_EQ(Run({"-C", own, "diff", "-2..-1", "--json"}).out,
            Run({"-C", own, "diff", "7", "9", "--json"}).out);
  EXPECT_EQ(Run({"-C", own, "rm", "-2..-1", "-y"}).code, 0);
  EXPECT_EQ(steps(".."), "4\n3\n2\n1\n");
}

}  // namespace
}  // namespace ckptree
