// SPDX-License-Identifier: Apache-2.0

// Kill and power cut at every file-system call of ours and RocksDB's.

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

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
constexpr int kMostCalls = 2000;  // Of one scenario: far above what one makes.
constexpr int kMostWrong = 5;     // Then a sweep gives up.

class TrialSweepTest : public ::testing::TestWithParam<TrialScenario> {
 protected:
  // The 1st, 2nd, ... call, until a run ends unfired.
  static void Sweep(Mode mode, std::string_view name, int seeds) {
    TrialBench bench(GetParam());
    TrialTally tally;
    bool fired = true;
    const int stride = CallStride();
    for (int n =
             1 + static_cast<int>(kSeed % static_cast<std::uint64_t>(stride));
         fired && n < kMostCalls; n += stride) {
      fired = false;
      for (int i = 0; i < seeds; ++i) {
        const FaultPlan plan = {
            .mode = mode,
            .at = static_cast<std::uint64_t>(n),
            .seed = kSeed + static_cast<std::uint64_t>(n * seeds + i)};
        const TrialOutcome outcome = bench.Run({plan}, /*threads=*/1);
        tally.Add(outcome, GetParam().name, plan);
        fired |= outcome.fired;
      }
      if (tally.lost + tally.torn + tally.unopenable + tally.other >
          kMostWrong) {
        break;
      }
    }
    std::cout << "trial " << name << ", " << GetParam().name << ": "
              << tally.Text() << std::endl;
    EXPECT_TRUE(tally.clean());
    EXPECT_FALSE(fired) << "gave up";
    if (WholeTrial()) {
      EXPECT_GE(tally.fired, seeds * 2);
    }
    EXPECT_EQ(tally.fired, tally.died);
  }
};

TEST_P(TrialSweepTest, KilledAtEveryCall) { Sweep(Mode::kKill, "kill", 1); }

TEST_P(TrialSweepTest, PowerCutAtEveryCall) {
  Sweep(Mode::kPowerCut, "power cut", 5);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, TrialSweepTest,
                         ::testing::ValuesIn(AllScenarios()),
                         [](const auto& test) { return test.param.name; });

// A directory keeps or loses each of its changes by itself: CURRENT must not be
// there before all that it leads to is. Many seeds: few of them keep one and
// lose another.
TEST(TrialDirectoryTest, PowerCutAtEverySyncOfADirectory) {
  TrialTally tally;
  for (const TrialScenario& scenario : AllScenarios()) {
    if (scenario.name != "open_after_kill") continue;
    TrialBench bench(scenario);
    bool fired = true;
    for (std::uint64_t n = 1; fired; ++n) {
      for (std::uint64_t seed = 0;
           fired && seed < static_cast<std::uint64_t>(Scaled(30)); ++seed) {
        const FaultPlan plan = {.mode = Mode::kPowerCut,
                                .at = n,
                                .kinds = Bit(CallKind::kSyncDirectory),
                                .seed = kSeed + seed};
        const TrialOutcome outcome = bench.Run({plan}, /*threads=*/1);
        tally.Add(outcome, scenario.name, plan);
        fired = outcome.fired;
      }
    }
  }
  std::cout << "trial power cut, syncs of directories: " << tally.Text()
            << std::endl;
  EXPECT_TRUE(tally.clean());
  EXPECT_GE(tally.fired, Scaled(100));
}

// The harness itself: on a disk whose syncs of one kind of file do nothing, the
// same trials must find something wrong.
TEST(TrialMutantTest, ADiskThatLiesIsCaught) {
  if (!WholeTrial()) GTEST_SKIP() << "only as a whole";
  struct Lie {
    CallKind kind;
    std::uint32_t classes;
    std::string scenario;
  };
  const std::vector<Lie> lies = {
      {CallKind::kSync, Bit(FileClass::kJournal), "save_small"},
      // RocksDB syncs a segment once more when it takes it in.
      {CallKind::kSync, Bit(FileClass::kStaging) | Bit(FileClass::kSst),
       "save_large"},
      {CallKind::kSync, Bit(FileClass::kManifest), "save_large"},
      {CallKind::kSyncDirectory, kAllClasses, "save_large"}};
  for (const Lie& lie : lies) {
    for (const TrialScenario& scenario : AllScenarios()) {
      if (scenario.name != lie.scenario) continue;
      TrialBench bench(scenario);
      int caught = 0;
      int trials = 0;
      for (std::uint64_t seed = 0; seed < 60 && caught == 0; ++seed) {
        FaultPlan lying = {.mode = Mode::kLie,
                           .kinds = Bit(lie.kind),
                           .classes = lie.classes,
                           .sticky = true};
        // Power goes when the save is acknowledged, at the last calls.
        FaultPlan cut = {.mode = Mode::kPowerCut, .seed = seed};
        cut.at = bench.Calls() - seed % 2;
        const TrialOutcome outcome = bench.Run({lying, cut}, /*threads=*/1);
        caught += outcome.wrongs.empty() ? 0 : 1;
        ++trials;
      }
      std::cout << Name(lie.kind) << " does nothing in " << lie.scenario
                << ": caught by trial " << trials << std::endl;
      EXPECT_EQ(caught, 1);
    }
  }
}

TEST(TrialRandomTest, TwoHundredRandomPointsWithTwoThreads) {
  std::cout << "CKPTREE_TEST_SEED=" << kSeed << std::endl;
  FaultRandom random(kSeed);
  TrialBench bench(LongScenario());
  std::uint64_t calls = bench.Calls();
  TrialTally tally;
  const int points = Scaled(200);
  for (int i = 0; i < points; ++i) {
    const FaultPlan plan = {
        .mode = random.OneIn(2) ? Mode::kKill : Mode::kPowerCut,
        .at = 1 + random.Below(calls),
        .seed = random.Next()};
    const TrialOutcome outcome = bench.Run({plan}, /*threads=*/2);
    if (!outcome.fired) {
      calls = plan.at;  // There are fewer.
      --i;
    }
    tally.Add(outcome, "long", plan);
    if (!tally.clean() && tally.trials - tally.died > kMostWrong) break;
  }
  std::cout << "trial random points: " << tally.Text() << std::endl;
  EXPECT_TRUE(tally.clean());
  EXPECT_GE(tally.fired, points);
}

}  // namespace
}  // namespace ckptree::testing
