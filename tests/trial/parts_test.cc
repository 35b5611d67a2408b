// SPDX-License-Identifier: Apache-2.0

// One step of several processes: any of them is killed at any of its calls.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/version/row_scan.h"
#include "gtest/gtest.h"
#include "schema/dead_list.h"
#include "schema/keys.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/model/store.h"
#include "tests/trial/crew.h"
#include "tests/trial/fixture.h"

namespace ckptree::testing {
namespace {

using Steps = std::map<std::int64_t, ModelStep>;

const std::uint64_t kSeed = TrialSeed();
constexpr int kCoordinator = CrewFault::kCoordinator;
constexpr std::uint32_t kAllCalls = kAllChanges | Bit(CallKind::kRead);
constexpr std::uint64_t kMostCalls = 1000;  // Far above what one makes.
constexpr int kMostWrong = 5;               // Then a sweep gives up.
constexpr std::size_t kRowBytes = kSharedColumns * 4;

// The first thing that is wrong with step `number`, read whole and by a box
// that is in three parts.
std::optional<std::string> ReadsOtherwise(const Store& store,
                                          std::int64_t number,
                                          const ModelStep& step) {
  if (auto difference = StepDifference(store, number, step)) return difference;
  const auto leaf = step.leaves.find(std::string(kShared));
  if (leaf == step.leaves.end()) return std::nullopt;
  constexpr std::size_t kTop = 600, kHeight = 120, kLeft = 100, kWidth = 801;
  std::string box;
  for (std::size_t row = kTop; row < kTop + kHeight; ++row) {
    box += leaf->second.bytes.substr(row * kRowBytes + kLeft * 4, kWidth * 4);
  }
  std::string found(box.size(), '\0');
  const absl::Status status =
      store.OpenStep(AtStep(number))
          ->ReadBox(Path::Parse(kShared).value(),
                    {{kTop, kLeft}, {kHeight, kWidth}},
                    std::as_writable_bytes(std::span(found)));
  if (!status.ok()) return "box: " + std::string(status.ToString());
  if (found != box) return "a box reads back otherwise";
  return std::nullopt;
}

class TrialPartsTest : public ::testing::Test {
 protected:
  TrialPartsTest() : random_(kSeed), base_(SharedStep(random_)) {
    const TrialResult made = Coordinate([&](const TrialPipe& pipe) {
      Must(CreateStore(path(), 1)->Close(), "create", pipe);
    });
    Crew crew(path(), base_, 4);
    const TrialResult saved = Coordinate([&](const TrialPipe& pipe) {
      Store store = Open(pipe);
      Must(Commit(store, 1, crew), "base", pipe);
      Must(store.Close(), "close", pipe);
    });
    EXPECT_FALSE(made.broken() || saved.broken()) << saved.Text();
    EXPECT_EQ(crew.Finish(), 0);
    CopyStore(path(), directory_.path() + "/base");
  }

  std::string path() const { return directory_.store(); }

  static TrialResult Coordinate(
      const std::function<void(const TrialPipe&)>& body) {
    return RunChild([&](const TrialPipe& pipe) {
      signal(SIGPIPE, SIG_IGN);
      body(pipe);
    });
  }
  Store Open(const TrialPipe& pipe,
             std::shared_ptr<FaultFs> fs = nullptr) const {
    absl::StatusOr<Store> store = OpenStore(path(), 1, std::move(fs));
    Must(store.status(), "open", pipe);
    return *std::move(store);
  }
  static absl::Status Commit(Store& store, std::int64_t step,
                             const Crew& crew) {
    absl::StatusOr<RankedSave> save =
        RankedSave::Begin(store.Begin(step), {.world = crew.size()});
    if (!save.ok()) return save.status();
    absl::StatusOr<std::vector<std::string>> parts = crew.Gather(save->plan());
    SaveHandle handle = parts.ok() ? save->Commit(*std::move(parts))
                                   : save->Fail(parts.status());
    return handle.WaitCommitted();
  }
  static std::vector<std::string> SegmentsOf(const Store& store) {
    std::vector<std::string> keys;
    internal::ScanRows(internal::StoreEngine::Of(store).database(),
                       schema::Row::kSegment,
                       [&](std::string_view key, std::string_view) {
                         keys.emplace_back(key);
                         return absl::OkStatus();
                       })
        .IgnoreError();
    return keys;
  }
  static StepInfo InfoOf(const Store& store, std::int64_t step) {
    return store.Resolve(AtStep(step)).value();
  }

  // The directory itself stays: HEAD knows it by its inode.
  void Restore() const {
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      std::filesystem::remove_all(entry.path());
    }
    std::filesystem::copy(directory_.path() + "/base", path(),
                          std::filesystem::copy_options::recursive);
  }

  // Says STEPS and how many of `steps` are there: those that must be, the first
  // `least`, or all; WRONG where it is neither or something is not right.
  TrialResult Judge(const Steps& steps, std::size_t least) const {
    return RunChild([&](const TrialPipe& pipe) {
      Store store = Open(pipe);
      Must(StagingIsEmpty(path(), StoreIs::kOpen),
           "staging is not empty after open", pipe);
      const std::vector<StepInfo> found = store.Steps().value();
      Must(found.size() == least || found.size() == steps.size(),
           "number of steps", pipe);
      auto expected = steps.begin();
      for (const StepInfo& info : found) {
        Must(info.step == expected->first, "steps", pipe);
        const auto wrong = ReadsOtherwise(store, info.step, expected->second);
        Must(!wrong, wrong.value_or(""), pipe);
        ++expected;
      }
      auto finding = DeepFindings(store);
      Must(!finding, finding.value_or(""), pipe);
      FaultRandom random(7);
      const ModelStep next = TinyStep(random);
      Must(SaveStep(store, 99, next), "next save", pipe);
      const auto wrong = StepDifference(store, 99, next);
      Must(!wrong, wrong.value_or(""), pipe);
      finding = DeepFindings(store);
      Must(!finding, "next save: " + finding.value_or(""), pipe);
      Must(store.Close(), "close", pipe);
      Must(StagingIsEmpty(path(), StoreIs::kClosed),
           "staging is not empty after a save", pipe);
      pipe.Say(absl::StrFormat("STEPS %d", found.size()));
    });
  }
  void ExpectSteps(const Steps& steps) const {
    const TrialResult judged = Judge(steps, steps.size());
    EXPECT_EQ(judged.Said("STEPS").size(), 1u) << judged.Text();
  }
  static void ExpectRan(const TrialResult& coordinator, Crew& crew) {
    EXPECT_FALSE(coordinator.broken() || coordinator.killed);
    EXPECT_TRUE(coordinator.lines.empty()) << coordinator.Text();
    EXPECT_EQ(crew.Finish(), 0);
  }

  // One trial: step 2 is saved, `who` is killed. What is wrong, or nothing.
  struct Outcome {
    bool fired = false;
    bool saved = false;  // Step 2 is there.
    std::string wrong;
  };
  Outcome Run(const Steps& steps, int who, const FaultPlan& plan) {
    Restore();
    counts_->Reset();
    const CrewFault fault = {.who = who, .plan = plan, .counts = counts_.get()};
    Crew crew(path(), steps.at(2), 4, fault);
    const TrialResult coordinator = Coordinate([&](const TrialPipe& pipe) {
      const std::shared_ptr<FaultFs> fs = fault.For(kCoordinator);
      Store store = Open(pipe, fs);
      if (fs) fs->Arm({plan});
      const absl::Status status = Commit(store, 2, crew);
      pipe.Say(status.ok() ? "ACK" : "ERR " + std::string(status.ToString()));
      // A save that failed was told of above.
      Must(store.Close(), "close", pipe);
    });
    const int killed = crew.Finish();
    const TrialResult judged = Judge(steps, 1);

    Outcome outcome;
    outcome.fired = counts_->fired > 0;
    const std::vector<std::string> there = judged.Said("STEPS");
    outcome.saved = there == std::vector<std::string>{"2"};
    const auto check = [&](bool right, std::string_view what) {
      if (!right) outcome.wrong += std::string(what) + "; ";
    };
    const bool acknowledged = !coordinator.Said("ACK").empty();
    const bool refused = !coordinator.Said("ERR").empty();
    check(there.size() == 1, "the judge: " + judged.Text());
    check(!acknowledged || outcome.saved, "an acknowledged step is lost");
    check(!refused || !outcome.saved, "a step that failed is there");
    check(acknowledged || refused || coordinator.killed, "nothing was said");
    check(killed == (outcome.fired && who >= 0 ? 1 : 0), "ranks killed");
    check(coordinator.killed == (outcome.fired && who == kCoordinator) &&
              !coordinator.broken(),
          "the coordinator");
    check(refused == (outcome.fired && who >= 0), "the answer");
    if (!outcome.wrong.empty()) {
      outcome.wrong += counts_->FiredAt() + "; it said: " + coordinator.Text();
    }
    return outcome;
  }

  // The 1st, 1 + stride-th, ... of `kinds` of calls, until one is not made.
  void Sweep(int who, std::uint32_t kinds, std::uint64_t stride) {
    const Steps steps = {{1, base_}, {2, NextKeepingPart(3)}};
    int trials = 0, saved = 0, wrong = 0;
    bool fired = true;
    stride *= static_cast<std::uint64_t>(TrialStride());
    for (std::uint64_t n = 1; fired && n < kMostCalls; n += stride) {
      const FaultPlan plan = {.mode = FaultPlan::Mode::kKill,
                              .at = n,
                              .kinds = kinds,
                              .seed = kSeed + n};
      const Outcome outcome = Run(steps, who, plan);
      fired = outcome.fired;
      trials += fired ? 1 : 0;
      saved += fired && outcome.saved ? 1 : 0;
      EXPECT_EQ(outcome.wrong, "") << "call " << n;
      if (!outcome.wrong.empty() && ++wrong == kMostWrong) break;
      if (!fired) {
        EXPECT_TRUE(outcome.saved);
      }
    }
    std::cout << absl::StrFormat(
                     "trial parts, %s%s: %d trials, %d fired, then %d old, %d "
                     "new: %d otherwise wrong",
                     who == kCoordinator ? std::string("coordinator")
                                         : absl::StrFormat("rank %d", who),
                     kinds == kAllCalls ? ", reads too" : "", trials, trials,
                     trials - saved, saved, wrong)
              << std::endl;
    EXPECT_FALSE(fired) << "gave up";
    if (!WholeTrial()) return;
    // What is small or unchanged goes by the message alone.
    EXPECT_GE(trials, kinds == kAllCalls || who < 2 ? 3 : 0);
    if (who == kCoordinator) {
      EXPECT_GT(saved, 0);
      EXPECT_GT(trials, saved);
    } else {
      EXPECT_EQ(saved, 0);
    }
  }

  // All is new but what part `part` of four has.
  ModelStep NextKeepingPart(int part) {
    ModelStep next = SharedStep(random_);
    for (const auto& [name, extent] : ExtentsOf(base_, part, 4)) {
      next.leaves.at(name).bytes.replace(extent.first, extent.second,
                                         base_.leaves.at(name).bytes,
                                         extent.first, extent.second);
    }
    return next;
  }

  FaultRandom random_;
  ModelStep base_;
  TrialDirectory directory_;
  SharedFaultCounts counts_;
};

// ---- without faults ----

TEST_F(TrialPartsTest, AnUnchangedPartSharesItsBlocks) {
  const Steps steps = {{1, base_}, {2, NextKeepingPart(3)}};
  std::uint64_t changed = 0;
  for (int part = 0; part < 3; ++part) {
    for (const auto& [name, extent] : ExtentsOf(base_, part, 4)) {
      changed += extent.second;
    }
  }
  Crew crew(path(), steps.at(2), 4);
  const TrialResult saved = Coordinate([&](const TrialPipe& pipe) {
    Store store = Open(pipe);
    const std::vector<std::string> before = SegmentsOf(store);
    absl::StatusOr<RankedSave> save =
        RankedSave::Begin(store.Begin(2), {.world = 4});
    Must(save.status(), "plan", pipe);
    auto parts = crew.Gather(save->plan());
    Must(parts.status(), "gather", pipe);
    Must(parts->at(3).size() < 512, "the unchanged part has little to say",
         pipe);
    Must(save->Commit(*std::move(parts)).WaitCommitted(), "save", pipe);
    // A large part has segments, a small one and an unchanged one have none.
    std::set<int> with_segments;
    for (const std::string& key : SegmentsOf(store)) {
      if (std::find(before.begin(), before.end(), key) == before.end()) {
        with_segments.insert(schema::DecodeSegmentKey(key)->part);
      }
    }
    Must(with_segments == std::set<int>{0, 1}, "which parts have segments",
         pipe);
    const StepInfo info = InfoOf(store, 2);
    Must(info.new_bytes == changed,
         absl::StrFormat("new bytes: %d, not %d", info.new_bytes, changed),
         pipe);
    Must(info.base == InfoOf(store, 1).version, "its base", pipe);
    Must(store.Close(), "close", pipe);
  });
  ExpectRan(saved, crew);
  ExpectSteps(steps);
}

TEST_F(TrialPartsTest, PartsThatAreLostAreDead) {
  const Steps steps = {{1, base_},
                       {2, SharedStep(random_)},
                       {3, SharedStep(random_)},
                       {4, SharedStep(random_)},
                       {5, SharedStep(random_)}};
  Crew two(path(), steps.at(2), 2);
  Crew four(path(), steps.at(3), 4);
  Crew again(path(), steps.at(5), 4);
  const TrialResult saved = Coordinate([&](const TrialPipe& pipe) {
    Store store = Open(pipe);
    // The parts of which blocks died in the save of `step`.
    const auto dead = [&](std::int64_t step) {
      std::vector<int> parts;
      const auto row = internal::StoreEngine::Of(store).database().Get(
          schema::Space::kRecords,
          schema::DeadKey(InfoOf(store, step).version));
      const schema::DeadList list = schema::DecodeDeadList(**row).value();
      for (const schema::DeadPart& part : list.parts) {
        parts.push_back(part.part);
      }
      return parts;
    };
    Must(Commit(store, 2, two), "2 parts after 4", pipe);
    Must(dead(2) == std::vector<int>{0, 1, 2, 3}, "dead of step 2", pipe);
    Must(Commit(store, 3, four), "4 parts after 2", pipe);
    Must(dead(3) == std::vector<int>{0, 1}, "dead of step 3", pipe);
    Must(SaveStep(store, 4, steps.at(4)), "a plain save after 4 parts", pipe);
    Must(dead(4) == std::vector<int>{0, 1, 2, 3}, "dead of step 4", pipe);
    Must(Commit(store, 5, again), "4 parts after a plain save", pipe);
    Must(dead(5) == std::vector<int>{0}, "dead of step 5", pipe);
    Must(store.Close(), "close", pipe);
  });
  ExpectRan(saved, two);
  EXPECT_EQ(four.Finish(), 0);
  EXPECT_EQ(again.Finish(), 0);
  ExpectSteps(steps);
}

TEST_F(TrialPartsTest, WhatDoesNotBelongToTheSaveIsRefused) {
  const Steps steps = {{1, base_}, {2, SharedStep(random_)}};
  Crew stale(path(), steps.at(2), 4);
  Crew twice(path(), steps.at(2), 4);
  Crew good(path(), steps.at(2), 4);
  const TrialResult saved = Coordinate([&](const TrialPipe& pipe) {
    Store store = Open(pipe);
    const auto begin = [&] {
      absl::StatusOr<RankedSave> save =
          RankedSave::Begin(store.Begin(2), {.world = 4});
      Must(save.status(), "plan", pipe);
      return *std::move(save);
    };
    std::vector<std::string> old;
    {
      RankedSave save = begin();
      auto parts = stale.Gather(save.plan());
      Must(parts.status(), "gather", pipe);
      old = *parts;
      const absl::Status failed =
          save.Fail(absl::AbortedError("given up")).WaitCommitted();
      Must(absl::IsAborted(failed), "it was given up", pipe);
    }
    {
      // Nobody waits for a save that nobody commits.
      RankedSave save = begin();
    }
    {
      RankedSave save = begin();
      const absl::Status status = save.Commit(old).WaitCommitted();
      Must(
          absl::IsFailedPrecondition(status) &&
              status.message().find("another attempt") != status.message().npos,
          "parts of before: " + std::string(status.ToString()), pipe);
    }
    {
      RankedSave save = begin();
      auto parts = twice.Gather(save.plan());
      Must(parts.status(), "gather", pipe);
      parts->push_back(parts->front());
      const absl::Status status =
          save.Commit(*std::move(parts)).WaitCommitted();
      Must(absl::IsInvalidArgument(status) &&
               status.message().find("rank 0 handed over two") !=
                   status.message().npos,
           "a part twice: " + std::string(status.ToString()), pipe);
    }
    {
      RankedSave save = begin();
      const absl::Status status = save.Commit({}).WaitCommitted();
      Must(absl::IsInvalidArgument(status) &&
               status.message().find("0, 1, 2, 3") != status.message().npos,
           "no part: " + std::string(status.ToString()), pipe);
    }
    Must(StagingIsEmpty(path(), StoreIs::kOpen), "what failed left files",
         pipe);
    Must(Commit(store, 2, good), "after all", pipe);
    Must(StagingIsEmpty(path(), StoreIs::kOpen), "what was saved left files",
         pipe);
    Must(store.Close(), "close", pipe);
  });
  ExpectRan(saved, stale);
  EXPECT_EQ(twice.Finish(), 0);
  EXPECT_EQ(good.Finish(), 0);
  ExpectSteps(steps);
}

// ---- with them ----

TEST_F(TrialPartsTest, CoordinatorKilledAtEveryCall) {
  Sweep(kCoordinator, kAllChanges, 1);
}

TEST_F(TrialPartsTest, CoordinatorKilledAtReads) {
  Sweep(kCoordinator, kAllCalls, 3);
}

class TrialRankTest : public TrialPartsTest,
                      public ::testing::WithParamInterface<int> {};

TEST_P(TrialRankTest, KilledAtEveryCall) { Sweep(GetParam(), kAllChanges, 1); }

TEST_P(TrialRankTest, KilledAtReads) { Sweep(GetParam(), kAllCalls, 5); }

INSTANTIATE_TEST_SUITE_P(Ranks, TrialRankTest, ::testing::Range(0, 4));

}  // namespace
}  // namespace ckptree::testing
