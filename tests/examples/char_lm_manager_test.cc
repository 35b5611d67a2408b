// SPDX-License-Identifier: Apache-2.0

// char_lm under its manager, a save each step, killed again and again: the
// steps that are listed are always those that the policy leaves after one of
// the commits, and the end is that of a run that was never stopped.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckptree/ckptree.h"
#include "tests/examples/trainer_run.h"

namespace char_lm {
namespace {

constexpr char kPolicy[] = "latest(3) | every(500) | best(loss, min, 2)";

// False: its trainer was killed before it was.
bool IsMade(const std::string& directory) {
  ckptree::StoreOptions options;
  options.read_only = true;
  const absl::Status status =
      ckptree::Store::Open(directory, std::move(options)).status();
  return !absl::IsNotFound(status);
}

std::vector<std::int64_t> StepsOf(const std::string& directory) {
  const ckptree::Store store = OpenForReading(directory);
  std::vector<std::int64_t> steps;
  const std::vector<ckptree::StepInfo> infos = store.Steps().value();
  for (const ckptree::StepInfo& info : infos) steps.push_back(info.step);
  return steps;
}

// What a whole run left, and what the policy leaves of it step by step.
struct Reference {
  std::vector<std::string> digests;             // Of step 1, 2, ...
  std::vector<std::vector<std::int64_t>> live;  // Before step 1, after it, ...
};

Reference ReferenceOf(const std::string& directory) {
  Reference reference;
  reference.live.push_back({});
  const ckptree::Store store = OpenForReading(directory);
  const ckptree::Preservation policy =
      ckptree::ParsePreservation(kPolicy).value();
  const std::vector<ckptree::StepInfo> infos = store.Steps().value();
  std::vector<ckptree::PolicyStep> list;
  for (const ckptree::StepInfo& info : infos) {
    reference.digests.push_back(info.digest);
    list.push_back({.step = info.step, .metrics = info.metrics});
    const std::vector<bool> kept = ckptree::Preserve(policy, list).value();
    std::vector<ckptree::PolicyStep> left;
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      left.push_back(list[i]);
      numbers.push_back(list[i].step);
    }
    list = std::move(left);
    reference.live.push_back(std::move(numbers));
  }
  return reference;
}

class CharLmManagerTest : public testing::Test {
 protected:
  CharLmManagerTest() {
    std::string directory = testing::TempDir() + "char_lm_XXXXXX";
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    std::printf("CKPTREE_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(seed_));
  }
  ~CharLmManagerTest() override {
    // What failed is left to be looked at.
    if (!HasFailure()) std::filesystem::remove_all(directory_);
  }

  TrainerOutcome Run(const std::string& store, std::int64_t steps,
                     std::int64_t save_every, const std::string& keep,
                     std::optional<TrainerSignal> signal = std::nullopt) {
    return RunTrainer({"--tiny", "--batch", "1", "--store", store, "--steps",
                       absl::StrCat(steps), "--save-every",
                       absl::StrCat(save_every), "--keep", keep},
                      signal);
  }
  std::string Directory(std::string_view name) const {
    return absl::StrCat(directory_, "/", std::string(name));
  }
  std::chrono::nanoseconds Below(double nanoseconds) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(
        std::uniform_real_distribution<double>(0, nanoseconds)(random_)));
  }

  const std::uint64_t seed_ =
      NumberFromEnvironment("CKPTREE_TEST_SEED", std::random_device()());
  std::mt19937_64 random_{seed_};
  std::string directory_;
};

TEST_F(CharLmManagerTest, ListsWhatThePolicyLeftAfterEveryKill) {
  const auto wanted =
      static_cast<int>(NumberFromEnvironment("CKPTREE_TEST_KILLS", 100));
  const std::int64_t steps = wanted * std::int64_t{100};
  const TrainerOutcome whole = Run(Directory("reference"), steps, 1, "all");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const Reference reference = ReferenceOf(Directory("reference"));
  std::filesystem::remove_all(Directory("reference"));
  ASSERT_EQ(reference.digests.size(), static_cast<std::size_t>(steps));

  // One history has about as many kills as it should.
  const double apart = 2.0 * static_cast<double>(whole.took.count()) / wanted;
  int kills = 0, terms = 0, histories = 0, shrunk = 0;
  while (kills < wanted || histories == 0) {
    const std::string store = Directory(absl::StrCat("run_", histories++));
    ASSERT_LE(histories, 20) << "the kills come too late";
    bool done = false;
    std::int64_t told = 0;
    for (int run = 0; !done; ++run) {
      SCOPED_TRACE(
          absl::StrCat("seed ", seed_, ", history ", histories, ", run ", run));
      std::optional<TrainerSignal> signal;
      if (kills < wanted) {
        signal = TrainerSignal{run % 6 == 5 ? SIGTERM : SIGKILL, Below(apart)};
      }
      const TrainerOutcome outcome = Run(store, steps, 1, kPolicy, signal);
      kills += outcome.killed ? 1 : 0;
      done = outcome.exit_code == 0;
      if (told == 0 && outcome.LastCommitted() <= 0 && !IsMade(store)) continue;
      const std::int64_t preempted =
          outcome.Highest("preempted: step ", " is saved");
      if (outcome.exit_code == 128 + SIGTERM) {
        ASSERT_GT(preempted, 0) << outcome.output;
        ++terms;
      } else if (!done) {
        // By the signal itself, where it came before the handler.
        ASSERT_EQ(outcome.exit_code, -1) << outcome.output;
      }
      // Two saves may be in flight beyond the last that was told.
      told = std::max(
          {told, outcome.LastCommitted(), outcome.ResumedFrom(), preempted});
      const std::vector<std::int64_t> listed = StepsOf(store);
      bool found = false;
      for (std::int64_t n = told; n <= std::min(told + 2, steps); ++n) {
        found |= listed == reference.live[static_cast<std::size_t>(n)];
      }
      EXPECT_TRUE(found) << absl::StrJoin(listed, " ") << "; told of " << told
                         << "\n"
                         << outcome.output;
      shrunk += listed.size() < static_cast<std::size_t>(told) ? 1 : 0;
      ASSERT_FALSE(HasFailure());
    }
    // Each step that is left has the bits of the run that was never stopped.
    const ckptree::Store opened = OpenForReading(store);
    const std::vector<ckptree::StepInfo> infos = opened.Steps().value();
    EXPECT_EQ(infos.size(), reference.live.back().size());
    for (const ckptree::StepInfo& info : infos) {
      EXPECT_EQ(info.digest,
                reference.digests[static_cast<std::size_t>(info.step - 1)])
          << info.step;
    }
    ExpectSound(opened);
  }
  std::printf(
      "trial manager: %d trials, %d fired, %d died, %d preempted, %d histories "
      "of %lld steps: 0 lost\n",
      kills, kills, kills, terms, histories, static_cast<long long>(steps));
  EXPECT_GT(shrunk, wanted / 2);
}

// Saved at the step of the signal, whatever its number; and no bit is lost.
TEST_F(CharLmManagerTest, GoesOnWhereItWasPreempted) {
  constexpr std::int64_t kSteps = 6000, kEvery = 2500;
  const TrainerOutcome whole = Run(Directory("whole"), kSteps, kEvery, "all");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  int preempted = 0;
  const std::string store = Directory("run");
  for (int run = 0;; ++run) {
    ASSERT_LT(run, 500);
    const bool last = preempted >= 5;
    std::optional<TrainerSignal> signal;
    if (!last) {
      signal = TrainerSignal{
          SIGTERM, Below(static_cast<double>(whole.took.count()) / 2)};
    }
    const TrainerOutcome outcome = Run(store, kSteps, kEvery, "all", signal);
    if (outcome.exit_code == 128 + SIGTERM) {
      const std::int64_t step =
          outcome.Highest("preempted: step ", " is saved");
      EXPECT_EQ(StepsOf(store).back(), step) << outcome.output;
      preempted += step % kEvery != 0 ? 1 : 0;
    } else if (outcome.exit_code == 0) {
      if (last) break;
      std::filesystem::remove_all(store);  // Too late, or never: once more.
    }
  }
  const ckptree::Store expected = OpenForReading(Directory("whole"));
  const ckptree::Store resumed = OpenForReading(store);
  EXPECT_EQ(resumed.Resolve(ckptree::AtStep(kSteps))->digest,
            expected.Resolve(ckptree::AtStep(kSteps))->digest);
}

}  // namespace
}  // namespace char_lm
