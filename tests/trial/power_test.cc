// SPDX-License-Identifier: Apache-2.0

// Power cuts of a real ext4 on a loop device while a process saves: what was
// acknowledged is there, bit for bit, and the next saves work.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/ext4_disk.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/model/state.h"
#include "tests/model/step.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

const std::uint64_t kSeed = TrialSeed();
constexpr int kSaves = 24;  // Before which power goes.

int Rounds() {
  const char* const wanted = std::getenv("CKPTREE_TEST_POWER_ROUNDS");
  return wanted == nullptr ? Scaled(20) : std::atoi(wanted);
}

// Small saves, and every fourth a large one.
std::vector<ModelState> States(FaultRandom& random) {
  std::vector<ModelState> states(1);
  auto content = std::make_shared<const ModelStep>(TinyStep(random));
  for (int i = 0; i < kSaves; ++i) {
    ModelState next = states.back();
    next.Save(i, content);
    states.push_back(std::move(next));
    content = std::make_shared<const ModelStep>(
        Changed(*content, random, /*large=*/i % 4 == 2));
  }
  return states;
}

// In the child: creates the store and saves until something fails.
void SaveAll(const std::string& directory,
             const std::vector<ModelState>& states,
             const std::shared_ptr<FaultFs>& fs, const TrialPipe& pipe) {
  absl::StatusOr<Store> store = CreateStore(directory, 2, fs);
  if (!store.ok()) _exit(0);
  pipe.Say("ACK create");
  for (int i = 0; i < kSaves; ++i) {
    if (!SaveStep(*store, i, *states.back().steps.at(i)).ok()) _exit(0);
    pipe.Say(absl::StrFormat("ACK %d", i));
  }
  pipe.Say("NOT CUT");
  _exit(0);
}

struct Cut {
  int acks = 0;  // After so many, the parent cuts; 0: the child does,
  int call = 0;  // at this file-system call.
  bool flush_log = false;
  bool lies = false;  // No sync of the child reaches the disk.
};

Cut RandomCut(FaultRandom& random, bool by_call) {
  Cut cut{.flush_log = random.OneIn(4)};
  (by_call ? cut.call : cut.acks) = 1 + random.Int(by_call ? 180 : kSaves - 2);
  return cut;
}

struct Outcome {
  bool cut = false;
  int acked = 0;      // Saves, and the creation.
  bool more = false;  // What was being saved is there.
  std::vector<std::string> wrongs;
};

class TrialPowerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto disk = Ext4Disk::Make(directory_.path(), std::uint64_t{128} << 20);
    if (!disk.ok()) {
      std::cout << "SKIPPED: power: cuts of a real ext4: "
                << disk.status().message() << std::endl;
      GTEST_SKIP() << disk.status().message();
    }
    disk_ = *std::move(disk);
  }

  Outcome Round(std::uint64_t seed, const Cut& cut) {
    FaultRandom random(seed);
    const std::vector<ModelState> states = States(random);
    const std::string store = disk_->path() + "/store";
    std::filesystem::remove_all(store);
    SyncDisk();
    Outcome outcome = SaveUntilCut(states, cut);
    if (!outcome.cut) return outcome;
    if (const absl::Status status = disk_->Remount(); !status.ok()) {
      outcome.wrongs.emplace_back(status.message());
      return outcome;
    }
    const auto done = static_cast<std::size_t>(std::max(0, outcome.acked - 1));
    std::vector<ModelState> allowed = {states[done]};
    if (done + 1 < states.size()) allowed.push_back(states[done + 1]);
    const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
      JudgeStore(store, allowed, /*may_be_absent=*/outcome.acked == 0, pipe);
    });
    outcome.wrongs = Wrongs(judged);
    ForgiveTornManifest(&outcome.wrongs);
    outcome.more = judged.Said("STATE") == std::vector<std::string>{"1"};
    return outcome;
  }

  TrialDirectory directory_;
  std::unique_ptr<Ext4Disk> disk_;
  SharedFaultCounts counts_;

 private:
  // So that a cut does not bring the store of the last round back.
  void SyncDisk() const {
    const int folder = open(disk_->path().c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(syncfs(folder), 0);
    close(folder);
  }

  Outcome SaveUntilCut(const std::vector<ModelState>& states, const Cut& cut) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    counts_->Reset();
    std::cout << std::flush;
    const pid_t child = fork();
    if (child < 0) return {};
    if (child == 0) {
      close(ends[0]);
      alarm(60);
      SaveAll(disk_->path() + "/store", states, FaultsOf(cut),
              TrialPipe(ends[1]));
    }
    close(ends[1]);
    Outcome outcome;
    bool to_the_end = false;
    std::string text;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(ends[0], buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<std::size_t>(n));
      for (std::size_t end; (end = text.find('\n')) != text.npos;
           text.erase(0, end + 1)) {
        to_the_end |= text.starts_with("NOT CUT");
        outcome.acked += text.starts_with("ACK") ? 1 : 0;
        if (cut.acks > 0 && !outcome.cut && outcome.acked == cut.acks) {
          outcome.cut = disk_->CutPower(cut.flush_log).ok();
          if (!outcome.cut) kill(child, SIGKILL);
        }
      }
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (cut.call > 0) outcome.cut = counts_->fired > 0;
    outcome.cut = outcome.cut && ended && !to_the_end;
    return outcome;
  }

  // Armed, for the child.
  std::shared_ptr<FaultFs> FaultsOf(const Cut& cut) const {
    auto fs = std::make_shared<FaultFs>(std::string(), counts_.get());
    std::vector<FaultPlan> plans;
    if (cut.lies) {
      plans.push_back(
          {.mode = FaultPlan::Mode::kLie,
           .kinds = Bit(CallKind::kSync) | Bit(CallKind::kSyncDirectory),
           .sticky = true});
    }
    if (cut.call > 0) {
      plans.push_back({.mode = FaultPlan::Mode::kNotify,
                       .at = static_cast<std::uint64_t>(cut.call),
                       .notify = [this, cut] {
                         if (!disk_->CutPower(cut.flush_log).ok()) _exit(1);
                       }});
    }
    fs->Arm(std::move(plans));
    return fs;
  }
};

TEST_F(TrialPowerTest, AcknowledgedStepsSurvive) {
  std::cout << "CKPTREE_TEST_SEED=" << kSeed << std::endl;
  int rounds = 0, by_call = 0, acked = 0, more = 0, wrong = 0;
  while (rounds < Rounds() && wrong < 5) {
    const std::uint64_t seed =
        kSeed * 100'000 + static_cast<std::uint64_t>(rounds);
    FaultRandom random(seed);
    const Cut cut = RandomCut(random, ++rounds % 2 == 0);
    const Outcome outcome = Round(seed, cut);
    ASSERT_TRUE(outcome.cut) << "seed " << seed;
    by_call += cut.call > 0 ? 1 : 0;
    acked += std::max(0, outcome.acked - 1);
    more += outcome.more ? 1 : 0;
    wrong += outcome.wrongs.empty() ? 0 : 1;
    for (const std::string& line : outcome.wrongs) {
      ADD_FAILURE() << "seed " << seed << ", after " << outcome.acked
                    << " acknowledged: " << line;
    }
  }
  std::cout << absl::StrFormat(
                   "trial power, ext4: %d trials, %d fired, %d of them at a "
                   "file-system call, %d steps acknowledged, %d there before "
                   "their acknowledgement: %d otherwise wrong",
                   rounds, rounds, by_call, acked, more, wrong)
            << std::endl;
  if (WholeTrial()) {
    EXPECT_GT(acked, rounds);
  }
}

// The harness itself: where no sync reaches the disk, it must find a loss.
TEST_F(TrialPowerTest, ADiskThatLiesIsCaught) {
  bool caught = false;
  int trials = 0;
  while (!caught && trials < 5) {
    const Outcome outcome = Round(kSeed + static_cast<std::uint64_t>(trials++),
                                  {.acks = kSaves / 2, .lies = true});
    ASSERT_TRUE(outcome.cut);
    caught = !outcome.wrongs.empty();
  }
  std::cout << "no sync reaches the disk: caught by trial " << trials << "\n";
  EXPECT_TRUE(caught);
}

// What can be tested of it where no loop device is to be had.
TEST(TrialPowerlessTest, WithoutRootItSaysSo) {
  const TrialDirectory directory;
  chmod(directory.path().c_str(), 0777);
  const TrialResult said = RunChild([&](const TrialPipe& pipe) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
    const auto disk = Ext4Disk::Make(directory.path(), 1 << 20);
    pipe.Say(absl::StrFormat("CODE %s", disk.status().ToString()));
  });
  ASSERT_EQ(said.Said("CODE").size(), 1u) << said.Text();
  EXPECT_EQ(said.Said("CODE")[0], "FAILED_PRECONDITION: needs root, to mount");
}

// The same rounds on a file system whose power is not cut: the child would
// notice, and the round not count.
TEST(TrialPowerlessTest, ARoundThatIsNotCutDoesNotCount) {
  const TrialDirectory directory;
  FaultRandom random(kSeed);
  const std::vector<ModelState> states = States(random);
  const TrialResult whole = RunChild([&](const TrialPipe& pipe) {
    SaveAll(directory.store(), states, nullptr, pipe);
  });
  EXPECT_EQ(whole.Said("ACK").size(), static_cast<std::size_t>(kSaves) + 1);
  EXPECT_EQ(whole.Said("NOT").size(), 1u);
  const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
    JudgeStore(directory.store(), {states.back()}, false, pipe);
  });
  EXPECT_EQ(Wrongs(judged), std::vector<std::string>());
}

}  // namespace
}  // namespace ckptree::testing
