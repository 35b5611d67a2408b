// SPDX-License-Identifier: Apache-2.0

// Saves of a manager, their failures, and what it tells of its steps. The names
// in the comments are the rows that python/manager_rows.md answers.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/manager_fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

// ---- CM: the manager ----

TEST_F(ManagerTest, RootMetadataIsWrittenOnce) {  // CM-07, OPT-22, CM-25
  Open({.metadata = "{\"global\": \"foo\"}"});
  EXPECT_EQ(*manager_->store().Metadata(), "{\"global\": \"foo\"}");
  Open({.metadata = "{\"global\": \"bar\"}"});
  EXPECT_EQ(*manager_->store().Metadata(), "{\"global\": \"foo\"}");
}

TEST_F(ManagerTest, LatestIsTheGreatest) {  // CM-10, CM-11, CM-16
  Open({.max_to_keep = 2});
  EXPECT_EQ(Latest(), std::nullopt);
  EXPECT_TRUE(Save(0));
  EXPECT_TRUE(Save(5));
  EXPECT_FALSE(Save(3));  // Not after the latest.
  EXPECT_FALSE(Save(5));
  EXPECT_THAT(Latest(), Optional(5));
  EXPECT_TRUE(Save(3, {.force = true}));
  EXPECT_THAT(Steps(), ElementsAre(3, 5));
  EXPECT_THAT(Latest(), Optional(5));
  EXPECT_TRUE(Save(6));
  EXPECT_THAT(Steps(), ElementsAre(5, 6));
}

TEST_F(ManagerTest, ForceDoesNotOverwrite) {  // CM-16, CM-17
  Open();
  EXPECT_TRUE(Save(1));
  EXPECT_EQ(TrySave(1, {.force = true}).status().code(), Code::kAlreadyExists);
  EXPECT_FALSE(manager_->IsSavingInProgress());  // CM-28
  EXPECT_TRUE(Save(1, {.note = "again", .force = true, .overwrite = true}));
  EXPECT_EQ(manager_->OpenStep(AtStep(1))->info().note, "again");
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(ManagerTest, RestoreFindsSteps) {  // CM-19, CM-20, CM-21
  Open();
  EXPECT_EQ(manager_->OpenStep().status().code(), Code::kNotFound);
  EXPECT_TRUE(SaveLoss(1, 3));
  EXPECT_TRUE(SaveLoss(2, 1));
  EXPECT_TRUE(SaveLoss(3, 2));
  EXPECT_EQ(manager_->OpenStep()->step(), 3);
  EXPECT_EQ(manager_->OpenStep(AtStep(1))->step(), 1);
  EXPECT_EQ(manager_->OpenStep(ckptree::Best("loss", BestMode::kMin))->step(),
            2);
  EXPECT_EQ(manager_->OpenStep(LatestHealthy())->step(), 3);
  EXPECT_THAT(std::string(manager_->OpenStep(AtStep(7)).status().message()),
              HasSubstr("no step 7"));
  EXPECT_OK(manager_->OpenStep(AtStep(1), {"state", "config"}));
  EXPECT_THAT(
      std::string(
          manager_->OpenStep(AtStep(1), {"optimizer"}).status().message()),
      HasSubstr("no item 'optimizer'; it has config, state"));
  // A save in flight is waited for.
  EXPECT_TRUE(*TrySave(4));
  EXPECT_EQ(manager_->OpenStep()->step(), 4);
}

TEST_F(ManagerTest, HealthIsNotAskedWithoutStatistics) {
  ManagerOptions options;
  options.store.statistics = false;
  options.preservation = Preservation(Healthy{});
  for (const bool again : {false, true}) {
    const absl::Status status = Opening(options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << again;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("preservation 'healthy(1)'"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("statistics"));
    Open();
  }
  // Over a store that is open so, and of a policy that was set by hand.
  const auto refuses = [this](const StoreOptions& how,
                              const ManagerOptions& given) {
    ASSERT_OK_AND_ASSIGN(const Store store, Store::Open(path(), how));
    EXPECT_THAT(
        std::string(CheckpointManager::Over(store, given).status().message()),
        HasSubstr("statistics off"));
  };
  manager_.reset();
  StoreOptions without = Quiet().store;
  without.statistics = false;
  ManagerOptions asking;
  asking.preservation = Preservation(Healthy{});
  refuses(without, asking);
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path(), Quiet().store));
    ASSERT_OK(store.SetPolicy(Healthy{}));
  }
  refuses(without, {});
  options.preservation.reset();
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("statistics off"));
  options.store.read_only = true;
  EXPECT_OK(Opening(options));
  options.store.read_only = false;
  options.preservation = Preservation(LatestN{2});
  EXPECT_OK(Opening(options));
}

TEST_F(ManagerTest, DecisionsSeeTheHealthOfSteps) {
  const auto fill = [](float value) {
    return [value](StepBuilder& builder) {
      builder.Put("x",
                  {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
      return builder.status();
    };
  };
  for (const bool statistics : {true, false}) {
    std::vector<bool> healthy;
    ManagerOptions options;
    options.branch = statistics ? "" : "other";
    options.store.statistics = statistics;
    options.save_decision =
        SaveDecision(CustomSave{[&healthy](const SaveQuestion& question) {
          healthy.clear();
          for (const PolicyStep& step : question.previous()) {
            healthy.push_back(step.healthy);
          }
          if (question.latest.has_value()) {
            EXPECT_EQ(question.latest->healthy, healthy.back());
          }
          return true;
        }});
    if (!statistics) {
      manager_.reset();
      ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path(), Quiet().store));
      ASSERT_OK(store.Fork(AtStep(1), "other"));
    }
    Open(options);
    for (const std::int64_t step : {1, 2, 3}) {
      const float value = step == 2 ? std::nanf("") : static_cast<float>(step);
      if (step == 1 && !statistics) continue;
      ASSERT_OK(manager_->Save(step, fill(value)));
      ASSERT_OK(manager_->WaitUntilFinished(kLong));
    }
    ASSERT_OK(manager_->Save(4, fill(5)));
    // A fork has no steps but its own.
    EXPECT_EQ(healthy, statistics ? std::vector<bool>({true, false, true})
                                  : std::vector<bool>({false, false}));
    ASSERT_OK(manager_->WaitUntilFinished(kLong));
  }
}

TEST_F(ManagerTest, ItemsAndMetadata) {  // CM-04, CM-05, CM-23, CM-24, CM-25
  Open();
  EXPECT_TRUE(Save(
      1, {.metrics = {{"loss", 2.5}}, .custom_metadata = "{\"who\": \"me\"}"}));
  ASSERT_OK_AND_ASSIGN(const std::vector<ItemInfo> items,
                       manager_->ItemMetadata(1));
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].name, "config");
  EXPECT_EQ(items[0].kind, "json");
  EXPECT_EQ(items[1].name, "state");
  EXPECT_EQ(items[1].kind, "tree");
  ASSERT_EQ(items[1].leaves.size(), 1u);
  EXPECT_EQ(items[1].leaves[0].name, "state/count");
  EXPECT_THAT(*manager_->Metrics(1),
              ElementsAre(std::pair<std::string, double>("loss", 2.5)));
  EXPECT_EQ(manager_->Metrics(2).status().code(), Code::kNotFound);
  EXPECT_EQ(manager_->ItemMetadata(2).status().code(), Code::kNotFound);
  EXPECT_EQ(manager_->OpenStep(AtStep(1))->Metadata()->custom,
            "{\"who\": \"me\"}");
  // A user's item called metrics does not get in the way.
  EXPECT_OK(manager_->Save(2,
                           [](StepBuilder& builder) {
                             builder.PutInt("metrics/x", 1);
                             return builder.status();
                           },
                           {.metrics = {{"loss", 1}}}));
  ASSERT_OK(manager_->WaitUntilFinished(kLong));
  EXPECT_EQ(manager_->Metrics(2)->front().second, 1);
  EXPECT_OK(manager_->OpenStep(AtStep(2))->Value("metrics/x"));
}

TEST_F(ManagerTest, DeleteAndReload) {  // CM-13, CM-22
  Open();
  for (std::int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(Save(step));
  ManagerOptions reading;
  reading.store.read_only = true;
  ASSERT_OK_AND_ASSIGN(CheckpointManager reader,
                       CheckpointManager::Open(path(), Quiet(reading)));
  EXPECT_OK(manager_->Delete(2));
  EXPECT_EQ(manager_->Delete(2).code(), Code::kNotFound);
  EXPECT_THAT(Steps(), ElementsAre(1, 3));
  ASSERT_OK(manager_->store().Pin(1));
  EXPECT_THAT(std::string(manager_->Delete(1).message()), HasSubstr("pinned"));
  EXPECT_EQ(reader.AllSteps()->size(), 3u);
  EXPECT_OK(reader.Reload());
  EXPECT_THAT(*reader.AllSteps(), ElementsAre(1, 3));
}

TEST_F(ManagerTest, TwoManagersWriteNoStore) {  // CM-02
  Open();
  EXPECT_THAT(std::string(Opening({}).message()), HasSubstr("pid"));
}

// ---- SV: a save, and its failures ----

// Puts an array that is read when `go` says so.
auto SlowFill(absl::Notification* go) {
  return [go](StepBuilder& builder) {
    builder.Put("w",
                {.dtype = DType::kUint8,
                 .shape = {1 << 20},
                 .copy =
                     [go](std::uint64_t, std::span<std::byte> to) {
                       go->WaitForNotification();
                       std::fill(to.begin(), to.end(), std::byte{1});
                       return absl::OkStatus();
                     }},
                Ownership::kBorrow);
    return builder.status();
  };
}

// A save that fails in the background: its array cannot be copied.
absl::Status FillBadly(StepBuilder& builder) {
  builder.Put("w", {.dtype = DType::kUint8,
                    .shape = {4},
                    .copy = [](std::uint64_t, std::span<std::byte>) {
                      return absl::InternalError("the device is gone");
                    }});
  return builder.status();
}

TEST_F(ManagerTest,
       AFailedSaveIsToldOnceAndListedNever) {  // SV-04, SV-05, SV-07
  Open({.max_to_keep = 1});
  EXPECT_TRUE(Save(1));
  for (int way = 0; way < 4; ++way) {
    const std::int64_t step = 10 + way;
    EXPECT_TRUE(*manager_->Save(step, FillBadly));
    SaveHandle save = manager_->LastSave();
    EXPECT_FALSE(save.WaitCommitted(kLong).ok());
    // The step it would have removed is still there.
    EXPECT_THAT(Steps(), ElementsAre(1));
    EXPECT_THAT(Latest(), Optional(1));
    const absl::Status told = way == 0   ? TrySave(20).status()
                              : way == 1 ? manager_->WaitUntilFinished(kLong)
                              : way == 2 ? manager_->CheckForErrors()
                                         : manager_->Close();
    EXPECT_THAT(std::string(told.message()), HasSubstr("the device is gone"))
        << way;
    if (way == 3) break;
    EXPECT_OK(manager_->CheckForErrors());
    EXPECT_THAT(Steps(), ElementsAre(1));
    // The step can be tried again.
    EXPECT_TRUE(*manager_->ShouldSave(step));
  }
  Open({.max_to_keep = 1});
  EXPECT_TRUE(Save(10));
  EXPECT_THAT(Steps(), ElementsAre(10));
}

TEST_F(ManagerTest, WhatWasSavedMayBeChangedAtOnce) {
  Open({.max_saves_in_flight = 100});
  std::vector<std::int64_t> buffer(300'000);
  for (std::int64_t step = 0; step < 10; ++step) {
    std::fill(buffer.begin(), buffer.end(), step);
    EXPECT_TRUE(*manager_->Save(step, [&](StepBuilder& builder) {
      builder.Put(
          "w",
          {.dtype = DType::kInt64, .shape = {300'000}, .data = buffer.data()});
      return absl::OkStatus();
    }));
  }
  std::fill(buffer.begin(), buffer.end(), -1);
  ASSERT_OK(manager_->WaitUntilFinished(kLong));
  for (std::int64_t step = 0; step < 10; ++step) {
    const auto value = manager_->OpenStep(AtStep(step))->Value("w");
    ASSERT_OK(value);
    std::memcpy(buffer.data(), value->bytes.data(), value->bytes.size());
    EXPECT_EQ(std::count(buffer.begin(), buffer.end(), step), 300'000) << step;
  }
}

TEST_F(ManagerTest, WhatFillSaysFailsTheCall) {  // SV-08
  Open();
  EXPECT_EQ(manager_
                ->Save(1,
                       [](StepBuilder&) {
                         return absl::AbortedError("changed my mind");
                       })
                .status()
                .code(),
            Code::kAborted);
  EXPECT_EQ(manager_
                ->Save(1,
                       [](StepBuilder& builder) {
                         builder.PutInt("a//b", 1);
                         return absl::OkStatus();
                       })
                .status()
                .code(),
            Code::kInvalidArgument);
  EXPECT_EQ(TrySave(-1, {.force = true}).status().code(),
            Code::kInvalidArgument);
  const auto moves = [](StepBuilder& builder) {
    StepBuilder other = std::move(builder);
    return other.PutInt("a", 1).status();
  };
  const absl::Status moved = manager_->Save(1, moves).status();
  EXPECT_EQ(moved.code(), Code::kInvalidArgument);
  EXPECT_THAT(moved.message(), HasSubstr("moved it away"));
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(Save(1));
  EXPECT_OK(manager_->Close());
}

TEST_F(ManagerTest,
       OneSaveAtATimeUnlessMoreAreAllowed) {  // SV-10, CM-28, SD-05
  absl::Notification go;
  const auto slow = SlowFill(&go);
  ManagerOptions options = {.save_timeout = absl::Milliseconds(20)};
  options.save_decision =
      AnySave{{ContinuousCheckpointing{}, SpecificSteps{{5}}}};
  Open(options);
  EXPECT_TRUE(*manager_->Save(1, slow));
  EXPECT_TRUE(manager_->IsSavingInProgress());
  EXPECT_FALSE(*manager_->ShouldSave(2));  // One is in progress.
  EXPECT_FALSE(*manager_->ShouldSave(1));  // It is in flight.
  EXPECT_TRUE(*manager_->ShouldSave(5));
  EXPECT_EQ(TrySave(5).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(manager_->WaitUntilFinished(absl::Milliseconds(5)).code(),
            Code::kDeadlineExceeded);
  EXPECT_THAT(Steps(), IsEmpty());  // Not before it is committed.
  go.Notify();
  EXPECT_OK(manager_->WaitUntilFinished(kLong));
  EXPECT_FALSE(manager_->IsSavingInProgress());
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_TRUE(*manager_->ShouldSave(2));
}

TEST_F(ManagerTest, TheWaitForRoomCanBeStopped) {
  absl::Notification go;
  Open({.save_interval_steps = 1});
  EXPECT_TRUE(*manager_->Save(1, SlowFill(&go)));
  int asked = 0;
  SaveArguments arguments;
  arguments.cancelled = [&asked] { return ++asked == 3; };
  EXPECT_THAT(TrySave(2, arguments), StatusIs(Code::kCancelled));
  EXPECT_EQ(asked, 3);
  arguments.cancelled = []() -> bool { throw std::runtime_error("no more"); };
  EXPECT_THAT(TrySave(2, arguments),
              StatusIs(Code::kInternal, HasSubstr("no more")));
  go.Notify();
  // Nothing was saved, and nothing failed.
  EXPECT_OK(manager_->WaitUntilFinished(kLong));
  EXPECT_THAT(Steps(), ElementsAre(1));
  arguments.cancelled = [] { return true; };  // There is nothing to wait for.
  EXPECT_TRUE(*TrySave(2, arguments));
}

TEST_F(ManagerTest, DecisionsNeedNotSeeSavesInProgress) {  // OPT-27
  absl::Notification go;
  ManagerOptions options = {.see_saves_in_progress = false,
                            .max_saves_in_flight = 2};
  options.save_decision = ContinuousCheckpointing{};
  Open(options);
  EXPECT_TRUE(*manager_->Save(1, SlowFill(&go)));
  EXPECT_TRUE(*manager_->ShouldSave(2));
  go.Notify();
  EXPECT_OK(manager_->WaitUntilFinished(kLong));
}

TEST_F(ManagerTest, TheDestructorLogsWhatCloseWouldSay) {  // CM-08
  Open();
  EXPECT_TRUE(*manager_->Save(1, FillBadly));
  manager_.reset();
  EXPECT_THAT(log_, HasSubstr("manager: "));
  EXPECT_THAT(log_, HasSubstr("the device is gone"));
}

TEST_F(ManagerTest, ContinuousByTime) {  // SD-05, OPT-27
  ManagerOptions options;
  options.save_decision = ContinuousCheckpointing{absl::Seconds(10)};
  Open(options);
  EXPECT_TRUE(Save(1));
  now_ += absl::Seconds(9);
  EXPECT_FALSE(Save(2));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Save(3));
  // Times are stored: the age counts after a restart, too.
  Open(options);
  now_ += absl::Seconds(9);
  EXPECT_FALSE(Save(4));
  now_ -= absl::Hours(1);  // The clock is set back: not yet.
  EXPECT_FALSE(Save(5));
  now_ += absl::Hours(2);
  EXPECT_TRUE(Save(6));
}

TEST_F(ManagerTest, DecisionsSeeTheStepsBefore) {  // SD-06
  std::vector<std::size_t> counts;
  ManagerOptions options;
  options.save_decision = CustomSave{[&counts](const SaveQuestion& question) {
    const std::vector<PolicyStep> previous = question.previous();
    counts.push_back(previous.size());
    EXPECT_EQ(question.latest.has_value(), !previous.empty());
    return previous.empty() || previous.back().Metric("loss").value_or(0) > 1.5;
  }};
  Open(options);
  EXPECT_TRUE(SaveLoss(1, 2));
  EXPECT_TRUE(SaveLoss(2, 1));
  EXPECT_FALSE(SaveLoss(3, 5));
  EXPECT_THAT(counts, ElementsAre(0, 1, 2));
}

TEST_F(ManagerTest, CloseSaysAllAndTwice) {  // CM-08, CM-29
  Open();
  EXPECT_TRUE(*TrySave(1));
  EXPECT_OK(manager_->Close());
  EXPECT_OK(manager_->Close());
  EXPECT_EQ(TrySave(2).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(manager_->AllSteps().status().code(), Code::kFailedPrecondition);
  Open();
  EXPECT_THAT(Steps(), ElementsAre(1));
}

// ---- preemption ----

TEST_F(ManagerTest, SigtermSavesOnceMore) {  // SD-04, CM-30, CM-14
  static volatile std::sig_atomic_t own = 0;
  const auto before = std::signal(SIGTERM, [](int) { own = own + 1; });
  Open({.save_interval_steps = 100, .watch_sigterm = true});
  EXPECT_TRUE(Save(100));
  EXPECT_FALSE(Save(101));
  EXPECT_FALSE(manager_->ReachedPreemption());
  std::raise(SIGTERM);
  EXPECT_EQ(own, 1);  // The program's own handler is called.
  EXPECT_TRUE(manager_->ReachedPreemption());
  EXPECT_FALSE(manager_->SavedForPreemption());
  EXPECT_FALSE(*TrySave(100));  // Not after the latest.
  EXPECT_TRUE(*TrySave(102));   // And is committed when it returns.
  EXPECT_THAT(Steps(), ElementsAre(100, 102));
  EXPECT_TRUE(manager_->SavedForPreemption());
  EXPECT_FALSE(*TrySave(103));  // Once.
  // Who lives on goes on as before.
  EXPECT_TRUE(Save(200));
  manager_.reset();
  std::raise(SIGTERM);
  EXPECT_EQ(own, 2);
  std::signal(SIGTERM, before);
}

TEST_F(ManagerTest, TheStepOfAPreemptionStays) {
  // No better than the best there is, and not to be lost for that; what failed
  // before has nothing to do with it.
  Open({.max_to_keep = 1,
        .best_metric = "loss",
        .best_mode = BestMode::kMin,
        .max_saves_in_flight = 2});
  EXPECT_TRUE(SaveLoss(1, 1));
  manager_->RequestPreemption();
  EXPECT_TRUE(*TrySave(2, {.metrics = {{"loss", 5}}}));
  EXPECT_TRUE(manager_->SavedForPreemption());
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  EXPECT_TRUE(SaveLoss(3, 4));
  EXPECT_THAT(Steps(), ElementsAre(1, 3));
}

TEST_F(ManagerTest, WatchedChildrenDieOfSigterm) {
  Open({.watch_sigterm = true});
  const pid_t child = fork();
  if (child == 0) {
    std::raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_FALSE(manager_->ReachedPreemption());
}

TEST_F(ManagerTest, HandlersThatCallEachOther) {
  static struct sigaction ours;
  static volatile std::sig_atomic_t theirs = 0;
  Open({.watch_sigterm = true});
  // A library takes our place and calls us; we come again and call it.
  struct sigaction chained = {};
  chained.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
    theirs = theirs + 1;
    ours.sa_sigaction(signal, info, context);
  };
  chained.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGTERM, &chained, &ours), 0);
  Open({.watch_sigterm = true});
  std::raise(SIGTERM);
  EXPECT_EQ(theirs, 1);
  EXPECT_TRUE(manager_->ReachedPreemption());
  manager_.reset();
  std::signal(SIGTERM, SIG_DFL);
}

TEST_F(ManagerTest, AForkedChildWaitsForNothing) {
  absl::Notification go;
  Open();
  EXPECT_TRUE(*manager_->Save(1, SlowFill(&go)));
  const pid_t child = fork();
  if (child == 0) {
    const bool right =
        manager_->WaitUntilFinished().code() == Code::kFailedPrecondition &&
        manager_->ShouldSave(2).status().code() == Code::kFailedPrecondition &&
        manager_->OpenStep().status().code() == Code::kFailedPrecondition &&
        manager_->Close().code() == Code::kFailedPrecondition;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  go.Notify();
  EXPECT_OK(manager_->WaitUntilFinished(kLong));
}

// ---- going on from an older step ----

TEST_F(ManagerTest, DeleteAfter) {
  Open({.max_to_keep = 5});
  for (std::int64_t step = 1; step <= 4; ++step) EXPECT_TRUE(Save(step));
  EXPECT_FALSE(Save(3));
  EXPECT_EQ(manager_->DeleteAfter(7).code(), Code::kNotFound);
  ASSERT_OK(manager_->store().Pin(4));
  EXPECT_EQ(manager_->DeleteAfter(2).code(), Code::kFailedPrecondition);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4));
  ASSERT_OK(manager_->store().Unpin(4));
  EXPECT_OK(manager_->DeleteAfter(2));
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  EXPECT_TRUE(Save(3));
  EXPECT_THAT(Latest(), Optional(3));
}

TEST_F(ManagerTest, ForkFrom) {
  Open({.max_to_keep = 2});
  for (std::int64_t step = 1; step <= 4; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(manager_->ForkFrom(1, "again").code(), Code::kNotFound);
  EXPECT_OK(manager_->ForkFrom(3, "again"));
  EXPECT_EQ(manager_->branch(), "again");
  EXPECT_THAT(Steps(), IsEmpty());
  // Killed now, it goes on from there.
  Open({.branch = "again"});
  EXPECT_EQ(manager_->OpenStep()->step(), 3);
  for (std::int64_t step = 4; step <= 6; ++step) EXPECT_TRUE(Save(step));
  // Opened without options, it keeps all.
  EXPECT_THAT(Steps(), ElementsAre(4, 5, 6));
  EXPECT_EQ(manager_->store().Steps()->size(), 2u);
  Open({.branch = "again"});
  EXPECT_THAT(Steps(), ElementsAre(4, 5, 6));
  EXPECT_EQ(Opening({.branch = "nowhere"}).code(), Code::kUnavailable);
  manager_.reset();
  EXPECT_EQ(Opening({.branch = "nowhere"}).code(), Code::kNotFound);
}

}  // namespace
}  // namespace ckptree::testing
