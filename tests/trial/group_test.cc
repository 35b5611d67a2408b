// SPDX-License-Identifier: Apache-2.0

// Four processes that save together by the store's folder, and one of them is
// killed at any of its calls, or that call fails, or the process stands still
// there until the others have given it up.

#include "core/ranks/group.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/require.h"
#include "ckptree/ranks.h"
#include "gtest/gtest.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/model/store.h"
#include "tests/trial/crew.h"
#include "tests/trial/fixture.h"

namespace ckptree::testing {
namespace {

const std::uint64_t kSeed = TrialSeed();
constexpr int kWorld = 4;
constexpr std::int64_t kFirst = 2, kLast = 3;  // What a trial saves.
constexpr std::uint64_t kMostCalls = 2000;     // Far above what one makes.
constexpr int kMostWrong = 5;                  // Then a sweep gives up.

constexpr absl::Duration kDeadline = absl::Milliseconds(300);
constexpr absl::Duration kStopped = absl::Milliseconds(1000);

// Stops this process, and has it go on after kStopped. To be made while there
// is one thread.
class Stop {
 public:
  Stop() {
    int ends[2];
    base::Require(pipe(ends) == 0, "a pipe");
    const pid_t stopped = getpid();
    const pid_t waker = fork();
    base::Require(waker >= 0, "a fork");
    if (waker == 0) {
      // Not until it is stopped, nor when it ends first.
      close(ends[1]);
      char byte = 0;
      if (read(ends[0], &byte, 1) == 1) {
        poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(kStopped)));
        kill(stopped, SIGCONT);
      }
      _exit(0);
    }
    close(ends[0]);
    end_ = ends[1];
  }

  void Now() const {
    base::Require(write(end_, "s", 1) == 1, "the waker is there");
    raise(SIGSTOP);
  }

 private:
  int end_ = -1;
};

class TrialGroupTest : public ::testing::Test {
 protected:
  TrialGroupTest() : random_(kSeed) {
    for (std::int64_t step = 1; step <= kLast + 1; ++step) {
      steps_[step] = SharedStep(random_);
    }
    const std::vector<TrialResult> made =
        Run({}, 1, 1, /*deadline=*/absl::Seconds(20));
    for (const TrialResult& rank : made) {
      EXPECT_EQ(rank.Said("ACK"), std::vector<std::string>{"1"}) << rank.Text();
    }
    CopyStore(path(), directory_.path() + "/base");
  }

  std::string path() const { return directory_.store(); }

  // Each rank opens the group, saves the steps, and says ACK, ERR or UNKNOWN
  // with the number of each, or OPEN where it could not.
  std::vector<TrialResult> Run(const CrewFault& fault, std::int64_t first,
                               std::int64_t last,
                               absl::Duration deadline) const {
    return RunChildren(kWorld, [&](int rank, const TrialPipe& pipe) {
      signal(SIGPIPE, SIG_IGN);
      const std::shared_ptr<FaultFs> fs = fault.For(rank);
      if (fs) {
        FaultPlan plan = fault.plan;
        if (plan.mode == FaultPlan::Mode::kNotify) {
          plan.notify = [stop = Stop()] { stop.Now(); };
        }
        fs->Arm({std::move(plan)});
      }
      RankOptions options;
      options.rank = rank;
      options.world = kWorld;
      options.job = "trial";
      options.deadline = deadline;
      options.open_deadline = std::max(deadline, absl::Seconds(3));
      options.store.create_if_missing = true;
      options.store.threads = 1;
      options.store.log = [](LogSeverity, std::string_view, std::string_view) {
      };
      absl::StatusOr<RankGroup> group =
          internal::RankGroupPeer::Open(path(), options, fs);
      if (!group.ok()) {
        pipe.Say("OPEN " + std::string(group.status().ToString()));
        return;
      }
      for (std::int64_t step = first; step <= last; ++step) {
        StepBuilder builder = group->Begin(step);
        PutPart(steps_.at(step), rank, kWorld, &builder);
        const absl::Status status =
            std::move(builder).Commit().WaitCommitted(absl::Seconds(30));
        if (status.ok()) {
          pipe.Say(absl::StrFormat("ACK %d", step));
        } else {
          pipe.Say(absl::StrFormat("%s %d %s",
                                   absl::IsUnknown(status) ? "UNKNOWN" : "ERR",
                                   step, std::string(status.ToString())));
        }
      }
      // What failed was told above.
      group->Close().IgnoreError();
      pipe.Say("CLOSED");
    });
  }

  void Restore() const {
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      std::filesystem::remove_all(entry.path());
    }
    std::filesystem::copy(directory_.path() + "/base", path(),
                          std::filesystem::copy_options::recursive);
  }

  // Says STEP and its number of each step that is there, whole; WRONG where one
  // is not, or the store is not right.
  TrialResult Judge() const {
    return RunChild([&](const TrialPipe& pipe) {
      absl::StatusOr<Store> store = OpenStore(path(), 1);
      Must(store.status(), "open", pipe);
      Must(StagingIsEmpty(path(), StoreIs::kOpen),
           "staging is not empty after open", pipe);
      const std::vector<StepInfo> listed = store->Steps().value();
      for (const StepInfo& info : listed) {
        const auto step = steps_.find(info.step);
        Must(step != steps_.end(), "a step that nobody saved", pipe);
        const auto wrong = StepDifference(*store, info.step, step->second);
        Must(!wrong, wrong.value_or(""), pipe);
        pipe.Say(absl::StrFormat("STEP %d", info.step));
      }
      const auto finding = DeepFindings(*store);
      Must(!finding, finding.value_or(""), pipe);
      Must(store->Close(), "close", pipe);
    });
  }

  // One trial. What is wrong, or nothing.
  std::string Trial(const CrewFault& fault, std::set<std::string>* there) {
    Restore();
    counts_->Reset();
    std::string wrong;
    const auto check = [&wrong](bool right, const std::string& what) {
      if (!right) wrong += what + "; ";
    };
    const std::vector<TrialResult> ranks = Run(fault, kFirst, kLast, kDeadline);
    const TrialResult judged = Judge();
    const std::vector<std::string> said = judged.Said("STEP");
    *there = {said.begin(), said.end()};
    check(!judged.broken() && judged.Said("WRONG").empty(),
          "the judge: " + judged.Text());
    check(there->contains("1"), "the step of before is gone");
    for (int rank = 0; rank < kWorld; ++rank) {
      const TrialResult& result = ranks[static_cast<std::size_t>(rank)];
      const bool killed = fault.plan.mode == FaultPlan::Mode::kKill &&
                          rank == fault.who && counts_->fired > 0;
      check(result.killed == killed && !result.broken(),
            absl::StrFormat("rank %d: %s", rank, result.Text()));
      for (const std::string& step : result.Said("ACK")) {
        check(there->contains(step),
              absl::StrFormat("rank %d was told of step %s, which is lost",
                              rank, step));
      }
      for (const std::string& line : result.Said("ERR")) {
        check(
            !there->contains(line.substr(0, line.find(' '))),
            absl::StrFormat("rank %d was told that it failed: %s", rank, line));
      }
    }
    // The next run goes on.
    const std::vector<TrialResult> next =
        Run({}, kLast + 1, kLast + 1, absl::Seconds(20));
    for (const TrialResult& rank : next) {
      check(rank.Said("ACK") == std::vector<std::string>{"4"},
            "the next run: " + rank.Text());
    }
    const TrialResult after = Judge();
    check(!after.broken() && after.Said("WRONG").empty() &&
              after.Said("STEP").size() == there->size() + 1,
          "after the next run: " + after.Text());
    if (!wrong.empty()) wrong += counts_->FiredAt();
    return wrong;
  }

  static const char* Text(FaultPlan::Mode mode) {
    switch (mode) {
      case FaultPlan::Mode::kKill:
        return "killed";
      case FaultPlan::Mode::kNotify:
        return "stopped";
      default:
        return "failing call";
    }
  }

  void Sweep(int who, FaultPlan::Mode mode, std::uint64_t stride) {
    int trials = 0, whole = 0, wrong = 0;
    bool fired = true;
    stride = std::max(stride * static_cast<std::uint64_t>(TrialStride()),
                      static_cast<std::uint64_t>(CallStride()));
    for (std::uint64_t n = 1; fired && n < kMostCalls; n += stride) {
      CrewFault fault;
      fault.who = who;
      fault.plan = {.mode = mode, .at = n, .seed = kSeed + n};
      fault.counts = counts_.get();
      std::set<std::string> there;
      const std::string problem = Trial(fault, &there);
      fired = counts_->fired > 0;
      trials += fired ? 1 : 0;
      whole += fired && there.size() == kLast ? 1 : 0;
      EXPECT_EQ(problem, "") << "call " << n;
      if (!problem.empty() && ++wrong == kMostWrong) break;
    }
    std::cout << absl::StrFormat(
                     "trial group, rank %d, %s: %d trials, %d fired, then %d "
                     "with all steps: %d otherwise wrong",
                     who, Text(mode), trials, trials, whole, wrong)
              << std::endl;
    EXPECT_FALSE(fired) << "gave up";
    EXPECT_GE(trials, CallStride() == 1 ? 10 : 1);
  }

  FaultRandom random_;
  std::map<std::int64_t, ModelStep> steps_;
  TrialDirectory directory_;
  SharedFaultCounts counts_;
};

TEST_F(TrialGroupTest, CoordinatorKilled) {
  Sweep(0, FaultPlan::Mode::kKill, 2);
}
TEST_F(TrialGroupTest, LargeRankKilled) { Sweep(1, FaultPlan::Mode::kKill, 1); }
TEST_F(TrialGroupTest, SmallRankKilled) { Sweep(3, FaultPlan::Mode::kKill, 1); }
TEST_F(TrialGroupTest, CoordinatorsCallFails) {
  Sweep(0, FaultPlan::Mode::kFail, 2);
}
TEST_F(TrialGroupTest, LargeRanksCallFails) {
  Sweep(1, FaultPlan::Mode::kFail, 1);
}
TEST_F(TrialGroupTest, SmallRanksCallFails) {
  Sweep(3, FaultPlan::Mode::kFail, 1);
}

// Longer than the deadline, and then it goes on as if nothing had been.
TEST_F(TrialGroupTest, CoordinatorStopped) {
  Sweep(0, FaultPlan::Mode::kNotify, 9);
}
TEST_F(TrialGroupTest, LargeRankStopped) {
  Sweep(1, FaultPlan::Mode::kNotify, 2);
}
TEST_F(TrialGroupTest, SmallRankStopped) {
  Sweep(3, FaultPlan::Mode::kNotify, 1);
}

}  // namespace
}  // namespace ckptree::testing
