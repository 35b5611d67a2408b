// SPDX-License-Identifier: Apache-2.0

// Kills char_lm at random moments and removes its disk: started on an empty
// one, it goes on from what the object store has, which is every step that was
// acknowledged, and ends with exactly the bits of a run that was never stopped.

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
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "tests/examples/trainer_run.h"

namespace char_lm {
namespace {

constexpr int kSteps = 40;

class CharLmRemoteTest : public testing::Test {
 protected:
  CharLmRemoteTest() {
    std::string directory = testing::TempDir() + "char_lm_XXXXXX";
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    setenv("XDG_CACHE_HOME", (directory_ + "/cache").c_str(), 1);
  }
  ~CharLmRemoteTest() override {
    // What failed is left to be looked at.
    if (!HasFailure()) std::filesystem::remove_all(directory_);
  }

  TrainerOutcome Run(const std::string& store, const std::string& remote,
                     std::optional<std::chrono::nanoseconds> kill_after) {
    std::vector<std::string> words = {"--tiny",
                                      "--store",
                                      store,
                                      "--batch",
                                      "16",
                                      "--steps",
                                      absl::StrCat(kSteps),
                                      "--save-every",
                                      "2"};
    if (!remote.empty()) words.insert(words.end(), {"--remote", remote});
    std::optional<TrainerSignal> signal;
    if (kill_after.has_value()) signal = TrainerSignal{SIGKILL, *kill_after};
    return RunTrainer(words, signal);
  }

  std::string directory_;
};

TEST_F(CharLmRemoteTest, GoesOnBitExactWithoutItsDisk) {
  const std::uint64_t seed =
      NumberFromEnvironment("CKPTREE_TEST_SEED", std::random_device()());
  const std::uint64_t wanted = NumberFromEnvironment("CKPTREE_TEST_KILLS", 50);
  std::printf("CKPTREE_TEST_SEED=%llu\n",
              static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::string reference = directory_ + "/reference";
  ASSERT_EQ(Run(reference, "", std::nullopt).exit_code, 0);
  const std::string digest =
      OpenForReading(reference).Resolve(ckptree::Latest()).value().digest;

  // How long a run over a remote takes that is not killed.
  std::chrono::nanoseconds whole{};
  std::uint64_t kills = 0;
  std::uint64_t resumed = 0;
  std::uint64_t disks = 0;
  for (std::uint64_t trial = 0; kills < wanted; ++trial) {
    ASSERT_LT(trial, 4 * wanted) << "the kills come too late";
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", trial ", trial));
    const std::string remote =
        absl::StrCat("file://", directory_, "/far_", trial);
    std::int64_t acknowledged = -1;
    const int runs = trial == 0 ? 1 : 2 + static_cast<int>(random() % 3);
    for (int run = 0; run < runs; ++run) {
      const std::string disk = absl::StrCat(directory_, "/disk_", disks++);
      std::optional<std::chrono::nanoseconds> kill_after;
      if (run + 1 < runs) {
        // Not before its first step: most of the run.
        kill_after =
            whole / 4 +
            std::chrono::nanoseconds(
                random() % static_cast<std::uint64_t>(whole.count() * 3 / 4));
      }
      const TrainerOutcome outcome = Run(disk, remote, kill_after);
      std::filesystem::remove_all(disk);
      kills += outcome.killed;
      if (!outcome.killed) {
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
      }
      // One that was killed early may not have said where it began.
      const bool began = outcome.ResumedFrom() >= 0 ||
                         outcome.output.find("is empty") != std::string::npos;
      if (began) {
        ASSERT_GE(outcome.ResumedFrom(), acknowledged)
            << "an acknowledged step is lost\n"
            << outcome.output;
      }
      resumed += outcome.ResumedFrom() > 0;
      acknowledged = std::max(acknowledged, outcome.LastCommitted());
      if (trial == 0) whole = outcome.took;
    }
    const ckptree::Store store = OpenForReading(remote);
    EXPECT_EQ(store.Resolve(ckptree::Latest()).value().step, kSteps);
    EXPECT_EQ(store.Resolve(ckptree::Latest()).value().digest, digest);
    ExpectSound(store);
    if (HasFailure()) return;
  }
  EXPECT_GE(resumed, wanted / 8);
  std::printf("%llu kills, %llu times gone on from the object store\n",
              static_cast<unsigned long long>(kills),
              static_cast<unsigned long long>(resumed));
}

}  // namespace
}  // namespace char_lm
