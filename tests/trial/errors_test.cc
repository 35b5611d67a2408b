// SPDX-License-Identifier: Apache-2.0

// Every file-system call fails in turn: errors are clean, nothing is lost.

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/fault/plan.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/trial/scenario.h"
#include "tests/trial/tally.h"

namespace ckptree::testing {
namespace {

using Mode = FaultPlan::Mode;

const std::uint64_t kSeed = TrialSeed();
constexpr int kMostCalls = 2000;
constexpr int kMostWrong = 5;

class TrialErrorsTest : public ::testing::TestWithParam<TrialScenario> {
 protected:
  static void Sweep(FaultPlan plan, bool cut_after) {
    TrialBench bench(GetParam());
    TrialTally tally;
    TrialOutcome outcome;
    const auto stride = static_cast<std::uint64_t>(
        plan.kinds == FaultPlan{}.kinds ? CallStride() : TrialStride());
    plan.at = 1 + kSeed % stride;
    do {
      outcome = bench.Run({plan}, /*threads=*/1, cut_after);
      tally.Add(outcome, GetParam().name, plan);
      plan.at += stride;
      ++plan.seed;
    } while (outcome.fired && plan.at < kMostCalls &&
             tally.lost + tally.torn + tally.unopenable + tally.other <
                 kMostWrong);
    std::cout << "trial failing call, " << GetParam().name << ": "
              << tally.Text() << std::endl;
    EXPECT_TRUE(tally.clean());
    EXPECT_FALSE(outcome.fired) << "gave up";
    if (WholeTrial()) {
      EXPECT_GE(tally.fired, 1);
    }
  }
};

TEST_P(TrialErrorsTest, EioOnce) {
  Sweep({.mode = Mode::kFail, .error = EIO, .seed = kSeed}, false);
}

TEST_P(TrialErrorsTest, EioForGood) {
  Sweep({.mode = Mode::kFail, .error = EIO, .sticky = true, .seed = kSeed},
        false);
}

TEST_P(TrialErrorsTest, EnospcOnce) {
  Sweep({.mode = Mode::kFail, .error = ENOSPC, .seed = kSeed}, false);
}

TEST_P(TrialErrorsTest, EnospcForGood) {
  Sweep({.mode = Mode::kFail, .error = ENOSPC, .sticky = true, .seed = kSeed},
        false);
}

// The bytes of the failed sync stay readable, later syncs succeed; then power
// goes.
TEST_P(TrialErrorsTest, AFailedSyncDropsItsBytes) {
  Sweep({.mode = Mode::kFailAndDrop,
         .kinds = Bit(CallKind::kSync),
         .error = EIO,
         .seed = kSeed},
        true);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, TrialErrorsTest,
                         ::testing::ValuesIn(AllScenarios()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ckptree::testing
