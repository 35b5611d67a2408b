// SPDX-License-Identifier: Apache-2.0

// Kills char_lm at random moments: started again, it must end with exactly the
// bits of a run that was never stopped.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "tests/examples/trainer_run.h"

namespace char_lm {
namespace {

constexpr int kSteps = 60;
constexpr int kSaveEvery = 2;

// With SIGKILL at the middle of step `kill_at`, or once `kill_after` has
// passed.
TrainerOutcome RunTiny(const std::string& store, int kill_at,
                       std::optional<std::chrono::nanoseconds> kill_after) {
  std::vector<std::string> words = {"--tiny",
                                    "--store",
                                    store,
                                    "--batch",
                                    "32",
                                    "--steps",
                                    absl::StrCat(kSteps),
                                    "--save-every",
                                    absl::StrCat(kSaveEvery)};
  if (kill_at > 0) {
    words.insert(words.end(), {"--kill-at", absl::StrCat(kill_at)});
  }
  std::optional<TrainerSignal> signal;
  if (kill_after.has_value()) signal = TrainerSignal{SIGKILL, *kill_after};
  return RunTrainer(words, signal);
}

// The same steps, and in each the same leaves with the same bytes.
void ExpectSameSteps(const std::string& directory,
                     const std::string& reference_directory) {
  const ckptree::Store store = OpenForReading(directory);
  const ckptree::Store reference = OpenForReading(reference_directory);
  const auto steps = store.Steps();
  const auto reference_steps = reference.Steps();
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_TRUE(reference_steps.ok()) << reference_steps.status();
  ASSERT_EQ(steps->size(), reference_steps->size());
  for (std::size_t i = 0; i < steps->size(); ++i) {
    EXPECT_EQ((*steps)[i].step, (*reference_steps)[i].step);
    EXPECT_EQ((*steps)[i].digest, (*reference_steps)[i].digest)
        << "step " << (*steps)[i].step;
  }

  const auto step = store.OpenStep(ckptree::Latest());
  const auto reference_step = reference.OpenStep(ckptree::Latest());
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_TRUE(reference_step.ok()) << reference_step.status();
  ASSERT_EQ(reference_step->step(), kSteps);
  ASSERT_EQ(step->step(), kSteps);
  const auto leaves = step->Leaves();
  const auto reference_leaves = reference_step->Leaves();
  ASSERT_TRUE(leaves.ok()) << leaves.status();
  ASSERT_TRUE(reference_leaves.ok()) << reference_leaves.status();
  ASSERT_EQ(leaves->size(), reference_leaves->size());
  int compared = 0;
  for (std::size_t i = 0; i < leaves->size(); ++i) {
    const ckptree::LeafInfo& leaf = (*leaves)[i];
    EXPECT_EQ(leaf.name, (*reference_leaves)[i].name);
    if (!leaf.is_leaf()) continue;
    const auto value = step->Value(leaf.path);
    const auto reference_value = reference_step->Value(leaf.path);
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_TRUE(reference_value.ok()) << reference_value.status();
    EXPECT_EQ(value->bytes, reference_value->bytes) << leaf.name;
    ++compared;
  }
  // Seven arrays, thrice, and five other leaves.
  EXPECT_EQ(compared, 26);
}

class CharLmResumeTest : public testing::Test {
 protected:
  CharLmResumeTest() {
    std::string directory = testing::TempDir() + "char_lm_XXXXXX";
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
  }
  ~CharLmResumeTest() override {
    // What failed is left to be looked at.
    if (!HasFailure()) std::filesystem::remove_all(directory_);
  }

  std::string Directory(std::string_view name) const {
    return absl::StrCat(directory_, "/", std::string(name));
  }

  std::string directory_;
};

TEST_F(CharLmResumeTest, EndsBitExactAfterEveryKill) {
  const std::uint64_t seed =
      NumberFromEnvironment("CKPTREE_TEST_SEED", std::random_device()());
  const std::uint64_t wanted = NumberFromEnvironment("CKPTREE_TEST_KILLS", 50);
  std::printf("CKPTREE_TEST_SEED=%llu\n",
              static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);

  const std::string reference = Directory("reference");
  const TrainerOutcome whole = RunTiny(reference, 0, std::nullopt);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  ASSERT_EQ(whole.LastCommitted(), kSteps) << whole.output;

  std::uint64_t kills = 0;
  std::uint64_t kills_by_clock = 0;
  std::uint64_t kills_with_a_save_in_flight = 0;
  for (std::uint64_t trial = 0; kills < wanted; ++trial) {
    ASSERT_LT(trial, 4 * wanted) << "the kills come too late";
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", trial ", trial));
    const std::string store = Directory(absl::StrCat("run_", trial));
    std::int64_t acknowledged = -1;
    bool hit = false;
    // The first run is killed, the second sometimes, the last never.
    const int runs = 2 + static_cast<int>(random() % 2);
    for (int run = 0; run < runs; ++run) {
      const bool last = run + 1 == runs;
      int kill_at = 0;
      std::optional<std::chrono::nanoseconds> kill_after;
      if (!last && random() % 3 == 0) {
        kill_at = 1 + static_cast<int>(random() % kSteps);
      } else if (!last) {
        kill_after = std::chrono::nanoseconds(
            random() % static_cast<std::uint64_t>(whole.took.count()));
      }
      const TrainerOutcome outcome = RunTiny(store, kill_at, kill_after);
      // What was said to be committed outlives the kill.
      if (acknowledged >= 0) {
        const bool got_that_far =
            outcome.output.find("resumed from") != std::string::npos ||
            outcome.output.find("starting at step 0") != std::string::npos;
        if (last || got_that_far) {
          EXPECT_GE(outcome.ResumedFrom(), acknowledged) << outcome.output;
        }
      }
      acknowledged = std::max(acknowledged, outcome.LastCommitted());
      if (outcome.killed) {
        ASSERT_FALSE(last);
        hit = true;
        ++kills;
        if (kill_after.has_value()) ++kills_by_clock;
        if (outcome.output.find("is in flight") != std::string::npos) {
          ++kills_with_a_save_in_flight;
        }
      } else {
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_NE(outcome.output.find("done: step 60"), std::string::npos)
            << outcome.output;
      }
      ASSERT_FALSE(HasFailure());
    }
    if (!hit) {
      std::filesystem::remove_all(store);
      continue;
    }
    ExpectSameSteps(store, reference);
    ExpectSound(OpenForReading(store));
    ASSERT_FALSE(HasFailure());
    std::filesystem::remove_all(store);
  }
  std::printf(
      "trial trainer: %llu trials, %llu fired, %llu of them by the clock, "
      "%llu with a save known to be in flight: 0 lost\n",
      static_cast<unsigned long long>(kills),
      static_cast<unsigned long long>(kills),
      static_cast<unsigned long long>(kills_by_clock),
      static_cast<unsigned long long>(kills_with_a_save_in_flight));
  if (wanted < 20) return;  // It may be without one or the other.
  EXPECT_GT(kills_by_clock, 0u);
  EXPECT_GT(kills_with_a_save_in_flight, 0u);
}

TEST_F(CharLmResumeTest, RefusesAStoreOfAnotherModel) {
  const std::string store = Directory("store");
  ASSERT_EQ(RunTiny(store, 0, std::nullopt).exit_code, 0);
  const std::string command =
      absl::StrCat("'", CHAR_LM_PROGRAM, "' --store '", store, "' --quiet 2> '",
                   Directory("errors"), "'");
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  std::FILE* errors = std::fopen(Directory("errors").c_str(), "r");
  ASSERT_NE(errors, nullptr);
  std::string text(65536, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), errors));
  std::fclose(errors);
  // Every difference is named, not the first alone.
  EXPECT_NE(text.find("params/embed/table"), std::string::npos) << text;
  EXPECT_NE(text.find("adam/second/hidden_1/kernel"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace char_lm
