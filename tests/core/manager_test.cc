// SPDX-License-Identifier: Apache-2.0

// The manager of a training loop, row by row of what Orbax's does: the names
// in the comments are the rows that python/manager_rows.md answers.

#include "ckptree/manager.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/manager_fixture.h"
#include "tests/core/policy_vector.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

// ---- A.4 of the vectors: gate, decision and retention together ----

TEST_F(ManagerTest, Vectors) {
  std::ifstream file(CKPTREE_POLICY_VECTORS);
  ASSERT_TRUE(file);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const Json vector = Json::parse(line);
    if (vector["section"] != "A.4") continue;
    SCOPED_TRACE(vector["id"].get<std::string>());
    ++count;
    ManagerOptions options;
    if (const Json& keep = vector["keep_policy"]; !keep.is_null()) {
      options.preservation = KeepOf(keep);
    }
    bool preempted = false;
    // The vectors name the steps at which the process is preempted.
    const SaveDecision decision = SaveOf(vector["save_policy"]);
    options.save_decision = CustomSave{[&](const SaveQuestion& asked) {
      SaveQuestion question = asked;
      question.preempted = preempted;
      return ShouldSave(decision, question).value();
    }};
    const std::string folder = dir_ / vector["id"].get<std::string>();
    absl::StatusOr<CheckpointManager> opened =
        CheckpointManager::Open(folder, Quiet(std::move(options)));
    if (vector["id"] == "A4-007") {  // latest(0): would keep nothing.
      EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
      continue;
    }
    ASSERT_OK(opened);
    CheckpointManager& manager = *opened;
    for (std::size_t i = 0; i < vector["calls"].size(); ++i) {
      const std::int64_t step = vector["calls"][i];
      preempted = false;
      if (vector.contains("preempt")) {
        for (const Json& at : vector["preempt"]) preempted |= at == step;
      }
      ASSERT_OK_AND_ASSIGN(const bool saved, manager.Save(step, Fill));
      ASSERT_OK(manager.WaitUntilFinished(kLong));
      const Json& expected = vector["result"][i];
      EXPECT_EQ(saved, expected[1].get<bool>()) << step;
      EXPECT_EQ(Json(manager.AllSteps().value()), expected[2]) << step;
    }
  }
  EXPECT_EQ(count, 6);
}

// ---- OPT: options ----

TEST_F(ManagerTest, SaveInterval) {  // OPT-01, SD-01, SD-03
  Open({.save_interval_steps = 2});
  EXPECT_TRUE(Save(1));  // The first, whatever its number.
  for (std::int64_t step = 2; step <= 6; ++step) {
    EXPECT_EQ(Save(step), step % 2 == 0) << step;
  }
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 4, 6));
  for (const std::int64_t interval : {0, -1}) {
    EXPECT_EQ(Opening({.save_interval_steps = interval}).code(),
              Code::kInvalidArgument);
  }
}

TEST_F(ManagerTest, NoIntervalSavesWhatIsNamed) {  // OPT-01, OPT-11
  Open({.save_interval_steps = std::nullopt, .save_on_steps = {3, 5}});
  for (std::int64_t step = 0; step <= 6; ++step) Save(step);
  EXPECT_THAT(Steps(), ElementsAre(0, 3, 5));
}

TEST_F(ManagerTest, MaxToKeep) {  // OPT-02, PP-02, SV-06
  Open({.max_to_keep = 2});
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_TRUE(Save(step));
  EXPECT_THAT(Steps(), ElementsAre(3, 4));
  EXPECT_THAT(std::string(Opening({.max_to_keep = 0}).message()),
              HasSubstr("latest(0) may keep nothing"));
  EXPECT_THAT(std::string(Opening({.max_to_keep = -1}).message()),
              HasSubstr("max_to_keep is -1"));
}

TEST_F(ManagerTest,
       KeepPeriodAndTimeInterval) {  // OPT-03, OPT-04, PP-03, PP-04
  Open({.max_to_keep = 0,
        .keep_period = 3,
        .keep_time_interval = absl::Hours(5)});
  for (std::int64_t step = 0; step <= 8; ++step) {
    EXPECT_TRUE(Save(step));
    now_ += absl::Hours(1);
  }
  EXPECT_THAT(Steps(), ElementsAre(0, 3, 5, 6, 8));  // And the newest.
  // Without max_to_keep all are kept, whatever the period.
  Open({.keep_period = 100});
  for (std::int64_t step = 9; step <= 11; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(Steps().size(), 8u);
  EXPECT_EQ(Opening({.keep_period = 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opening({.keep_time_interval = absl::ZeroDuration()}).code(),
            Code::kInvalidArgument);
}

TEST_F(ManagerTest, TimesSurviveARestart) {
  ManagerOptions options = {.max_to_keep = 2,
                            .keep_time_interval = absl::Hours(3)};
  Open(options);
  for (std::int64_t step = 0; step < 20; ++step) {
    if (step == 10) Open(options);
    EXPECT_TRUE(Save(step));
    now_ += absl::Hours(1);
  }
  EXPECT_THAT(Steps(), ElementsAre(0, 3, 6, 9, 12, 15, 18, 19));
}

TEST_F(ManagerTest, BestSteps) {  // OPT-05, OPT-06, PP-09, CM-12
  ManagerOptions options = {
      .max_to_keep = 2, .best_metric = "loss", .best_mode = BestMode::kMin};
  Open(options);
  const std::vector<double> losses = {5, 2, 4, 3, 7, 1, 10, 9, 7, 4};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i == 5) Open(options);
    EXPECT_TRUE(SaveLoss(static_cast<std::int64_t>(i), losses[i]));
  }
  // The newest is no better, and stays until a later one is saved.
  EXPECT_THAT(Steps(), ElementsAre(1, 5, 9));
  EXPECT_THAT(Best(), Optional(5));
  EXPECT_EQ(manager_->OpenStep(ckptree::BestByPolicy())->step(), 5);
  EXPECT_THAT(Latest(), Optional(9));
}

// By what a manager was given, before its first save as after it, and where it
// saves nothing: not by the policy of another one.
TEST_F(ManagerTest, TheBestStepIsOfThePreservationThatWasGiven) {  // CM-12
  const BestN by_loss = {.metric = "loss", .mode = BestMode::kMin};
  Open({.preservation = BestN{.metric = "acc", .mode = BestMode::kMax}});
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto loss = static_cast<double>((step + 3) % 4);  // Best: step 1.
    EXPECT_TRUE(Save(
        step, {.metrics = {{"loss", loss}, {"acc", step == 2 ? 1.0 : 0.5}}}));
  }
  EXPECT_THAT(Best(), Optional(2));
  const std::vector<Preservation> all = {
      by_loss, AnyOf{{LatestN{10}, by_loss}},
      AnyOf{{LatestN{1}, AllOf{{EveryNSteps{1}, AnyOf{{by_loss}}}}}}};
  for (const Preservation& given : all) {
    Open({.store = {.read_only = true}, .preservation = given});
    EXPECT_THAT(Best(), Optional(1)) << Text(given);
    EXPECT_EQ(manager_->OpenStep(ckptree::BestByPolicy())->step(), 1);
    Open({.preservation = given});
    EXPECT_THAT(Best(), Optional(1)) << Text(given);
    EXPECT_EQ(manager_->OpenStep(ckptree::BestByPolicy())->step(), 1);
    // Beside one of another policy, over one open store.
    absl::StatusOr<CheckpointManager> over = CheckpointManager::Over(
        manager_->store(), {.preservation = LatestN{9}});
    ASSERT_OK(over);
    EXPECT_THAT(*over->BestStep(), Optional(3));
    EXPECT_THAT(Best(), Optional(1));
  }
  // As after a save; a policy by hand since then is that of the branch.
  EXPECT_TRUE(Save(4, {.metrics = {{"loss", 7.0}, {"acc", 0.5}}}));
  EXPECT_THAT(Best(), Optional(1));
  Open({.preservation = by_loss});
  ASSERT_OK(manager_->store().SetPolicy(
      BestN{.metric = "acc", .mode = BestMode::kMax}));
  EXPECT_THAT(Best(), Optional(2));
  EXPECT_TRUE(Save(5, {.metrics = {{"loss", 7.0}, {"acc", 0.5}}}));
  EXPECT_THAT(Best(), Optional(2));
  // Who was given none asks the branch.
  Open();
  EXPECT_THAT(Best(), Optional(2));
  Open({.preservation = LatestN{9}});
  EXPECT_THAT(Best(), Optional(5));
}

// The best step is not lost to a policy of the store that knows of no metric.
TEST_F(ManagerTest, AMetricAloneKeepsAll) {  // OPT-05
  Open({.max_to_keep = 1});
  EXPECT_TRUE(SaveLoss(0, 1));
  Open({.best_metric = "loss", .best_mode = BestMode::kMin});
  EXPECT_TRUE(SaveLoss(1, 2));
  EXPECT_TRUE(SaveLoss(2, 3));
  EXPECT_THAT(Steps(), ElementsAre(0, 1, 2));
  EXPECT_THAT(Best(), Optional(0));
}

TEST_F(ManagerTest, BestByAFunction) {  // OPT-05
  const auto score = [](const PolicyStep& step) -> std::optional<double> {
    return step.Metric("acc").value_or(0) - step.Metric("loss").value_or(0);
  };
  Open({.max_to_keep = 1, .best_fn = score, .best_mode = BestMode::kMax});
  EXPECT_TRUE(Save(1, {.metrics = {{"acc", 0.9}, {"loss", 0.5}}}));
  EXPECT_TRUE(Save(2, {.metrics = {{"acc", 0.8}, {"loss", 0.1}}}));
  EXPECT_TRUE(Save(3, {.metrics = {{"acc", 0.9}, {"loss", 0.6}}}));
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
  EXPECT_THAT(Best(), Optional(2));
  // Without it nothing is removed, and somebody is told.
  Open();
  EXPECT_TRUE(Save(4));
  EXPECT_EQ(manager_->store().Policy()->text, "all");
}

TEST_F(ManagerTest, WithoutMetrics) {  // OPT-07, CM-18
  Open({.max_to_keep = 2, .best_metric = "loss", .best_mode = BestMode::kMin});
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(Steps().size(), 5u);
  EXPECT_EQ(Best(), std::nullopt);
  EXPECT_THAT(Latest(), Optional(4));
  Open({.max_to_keep = 1,
        .best_metric = "loss",
        .best_mode = BestMode::kMin,
        .keep_checkpoints_without_metrics = false});
  // A NaN is no metric.
  EXPECT_TRUE(SaveLoss(5, std::nan("")));
  EXPECT_THAT(Steps(), ElementsAre(5));
  EXPECT_EQ(Best(), std::nullopt);
  EXPECT_TRUE(SaveLoss(6, 2));
  EXPECT_TRUE(SaveLoss(7, 3));
  EXPECT_THAT(Steps(), ElementsAre(6, 7));
}

TEST_F(ManagerTest, ShouldSaveFn) {  // OPT-20, SD-07
  std::vector<std::string> asked;
  ManagerOptions options;
  options.should_save_fn = [&asked](std::int64_t step,
                                    std::optional<std::int64_t> latest) {
    asked.push_back(absl::StrFormat("%d after %d", step, latest.value_or(-1)));
    return step % 3 == 0;
  };
  Open(options);
  for (std::int64_t step = 1; step <= 4; ++step) Save(step);
  EXPECT_THAT(Steps(), ElementsAre(3));
  EXPECT_THAT(asked, ElementsAre("1 after -1", "2 after -1", "3 after -1",
                                 "4 after 3"));
  manager_->RequestPreemption();  // Stays beside it.
  EXPECT_TRUE(Save(5));
  options.should_save_fn = [](std::int64_t,
                              std::optional<std::int64_t>) -> bool {
    throw std::runtime_error("no idea");
  };
  Open(options);
  EXPECT_THAT(std::string(TrySave(9).status().message()),
              HasSubstr("should_save_fn"));
  EXPECT_THAT(Steps(), ElementsAre(3, 5));
}

TEST_F(ManagerTest, ShouldKeepFn) {  // Of an older Orbax.
  ManagerOptions options = {.max_to_keep = 1};
  options.should_keep_fn = [](const PolicyStep& step) {
    return step.step == 2;
  };
  Open(options);
  for (std::int64_t step = 1; step <= 4; ++step) EXPECT_TRUE(Save(step));
  EXPECT_THAT(Steps(), ElementsAre(2, 4));
  options.should_keep_fn = [](const PolicyStep&) -> bool { throw 1; };
  Open(options);
  EXPECT_OK(TrySave(5));
  EXPECT_THAT(std::string(manager_->WaitUntilFinished(kLong).message()),
              HasSubstr("step 5 was saved and the policy was not applied"));
  EXPECT_OK(manager_->WaitUntilFinished(kLong));  // Told once.
  EXPECT_THAT(Steps(), ElementsAre(2, 4, 5));
  // It stops no save.
  EXPECT_TRUE(*TrySave(6));
  EXPECT_TRUE(*TrySave(7));
  EXPECT_FALSE(manager_->WaitUntilFinished(kLong).ok());
  EXPECT_OK(manager_->CheckForErrors());
  EXPECT_THAT(Steps(), ElementsAre(2, 4, 5, 6, 7));
}

TEST_F(ManagerTest, ReadOnly) {  // OPT-16
  Open();
  EXPECT_TRUE(Save(1));
  ManagerOptions options;
  options.store.read_only = true;
  options.max_to_keep = 0;  // Of no use to a reader, and harmless.
  Open(options);
  EXPECT_FALSE(*manager_->ShouldSave(2));
  EXPECT_FALSE(*TrySave(2));
  EXPECT_EQ(TrySave(2, {.force = true}).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(manager_->Delete(1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(manager_->DeleteAfter(1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(manager_->ForkFrom(1, "x").code(), Code::kFailedPrecondition);
  EXPECT_OK(manager_->OpenStep());
  EXPECT_THAT(Steps(), ElementsAre(1));
  manager_.reset();
  EXPECT_EQ(
      CheckpointManager::Open(dir_ / "none", Quiet(options)).status().code(),
      Code::kNotFound);
}

TEST_F(ManagerTest, OptionsThatContradict) {  // OPT-25, CM-03
  ManagerOptions options = {.preservation = LatestN{1}};
  options.max_to_keep = 1;
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("max_to_keep"));
  options.max_to_keep.reset();
  options.keep_period = 1;
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("keep_period"));
  options.keep_period.reset();
  options.keep_time_interval = absl::Hours(1);
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("keep_time_interval"));
  options.keep_time_interval.reset();
  options.should_keep_fn = [](const PolicyStep&) { return true; };
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("should_keep_fn"));
  options.preservation.reset();
  options.keep_period = 2;
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("keep_period"));
  options = {.save_decision = OnPreemption{}};
  options.should_save_fn = [](std::int64_t, std::optional<std::int64_t>) {
    return true;
  };
  EXPECT_THAT(std::string(Opening(options).message()),
              HasSubstr("should_save_fn"));
  EXPECT_THAT(
      std::string(
          Opening({.keep_time_interval = absl::Milliseconds(1500)}).message()),
      HasSubstr("keep_time_interval is 1.5s: whole seconds"));
  EXPECT_EQ(Opening({.save_decision = FixedInterval{0}}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opening({.preservation = LatestN{-1}}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opening({.max_saves_in_flight = 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opening({.save_timeout = absl::ZeroDuration()}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opening({.metadata = "\xff"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opening({.branch = "nowhere"}).code(), Code::kNotFound);
  options = {.watch_sigterm = true};
  options.store.read_only = true;
  EXPECT_EQ(Opening(options).code(), Code::kInvalidArgument);
  // Nothing was made by any of them.
  EXPECT_EQ(Store::Open(path()).status().code(), Code::kNotFound);
}

TEST_F(ManagerTest, ThePolicyOfTheStore) {  // OPT-24, OPT-25
  Open({.max_to_keep = 2});
  for (std::int64_t step = 0; step < 4; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(manager_->store().Policy()->text, "latest(2)");
  // Options say nothing: what a program wanted before goes, with a save.
  Open();
  EXPECT_EQ(manager_->store().Policy()->text, "latest(2)");
  EXPECT_TRUE(Save(4));
  EXPECT_EQ(manager_->store().Policy()->text, "all");
  EXPECT_THAT(Steps(), ElementsAre(2, 3, 4));
  // What people set by hand stays until options say otherwise.
  ASSERT_OK(manager_->store().SetPolicy(LatestN{1}));
  Open();
  for (std::int64_t step = 5; step <= 7; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(manager_->store().Policy()->text, "latest(1)");
  EXPECT_THAT(Steps(), ElementsAre(7));
  Open({.preservation = EveryNSteps{2}});
  EXPECT_TRUE(Save(8));
  EXPECT_EQ(manager_->store().Policy()->text, "every(2)");
  EXPECT_THAT(log_, HasSubstr("'latest(1)', set by hand, gives way"));
}

TEST_F(ManagerTest, WhoOnlyReadsChangesNoPolicy) {
  Open();
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_TRUE(Save(step));
  ASSERT_OK(manager_->store().SetPolicy(LatestN{4}));
  Open({.max_to_keep = 1});
  ASSERT_OK(manager_->OpenStep());
  EXPECT_EQ(Steps().size(), 5u);
  Open({.best_metric = "loss", .best_mode = BestMode::kMin});
  Open();
  EXPECT_TRUE(Save(5));
  EXPECT_EQ(manager_->store().Policy()->text, "latest(4)");
  EXPECT_THAT(Steps(), ElementsAre(2, 3, 4, 5));
  // What can never be a policy is refused at once.
  EXPECT_EQ(Opening({.preservation = LatestN{0}}).code(),
            Code::kInvalidArgument);
}

TEST_F(ManagerTest, AForkGoesOnFromTheSaveThatItWasMadeOf) {
  Open();
  for (std::int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(Save(step));
  for (const char* fork : {"a", "b", "c"}) {
    ASSERT_OK(manager_->store().Fork(AtStep(fork[0] - 'a' + 1), fork));
  }
  EXPECT_TRUE(Save(3, {.overwrite = true}));
  ASSERT_OK(manager_->store().Delete({AtStep(2)}));
  for (const auto& [fork, why] :
       {std::pair("a", ""), std::pair("b", "step 2, .*was deleted since"),
        std::pair("c", "step 3, .*was saved anew since")}) {
    Open({.branch = fork});
    const absl::StatusOr<Step> opened = manager_->OpenStep();
    if (*why == 0) {
      ASSERT_OK(opened);
      EXPECT_EQ(opened->step(), 1);
    } else {
      EXPECT_EQ(opened.status().code(), Code::kNotFound);
      EXPECT_THAT(std::string(opened.status().message()),
                  ::testing::ContainsRegex(why));
    }
  }
}

TEST_F(ManagerTest, AnEarlierStepIsSaidOnce) {
  Open();
  EXPECT_TRUE(Save(5));
  log_.clear();
  EXPECT_FALSE(Save(5));
  EXPECT_THAT(log_, HasSubstr("step 5 was not saved: it is not after step 5"));
  log_.clear();
  EXPECT_FALSE(Save(4));
  EXPECT_EQ(log_, "");
  // A step that is there is replaced where that is asked for.
  EXPECT_TRUE(Save(5, {.note = "again", .overwrite = true}));
  EXPECT_EQ(manager_->OpenStep(AtStep(5))->info().note, "again");
  EXPECT_FALSE(Save(4, {.overwrite = true}));
  EXPECT_THAT(Steps(), ElementsAre(5));
}

// Who waits for the save of a preemption is told that it was not made, also
// where nobody else is: it was cancelled.
TEST_F(ManagerTest, ASaveOfAPreemptionThatWasNotMade) {
  Open();
  EXPECT_TRUE(Save(1));
  manager_->RequestPreemption();
  const absl::StatusOr<bool> saved =
      manager_->Save(2, [&](StepBuilder& builder) {
        Tensor tensor = {.dtype = DType::kUint8, .shape = {1 << 20}};
        tensor.copy = [&](std::uint64_t, std::span<std::byte>) {
          // The manager has it once it was submitted.
          while (manager_->LastSave().step() != 2) std::this_thread::yield();
          manager_->LastSave().Cancel();
          return absl::OkStatus();
        };
        builder.Put("w", tensor);
        return builder.status();
      });
  EXPECT_EQ(saved.status().code(), Code::kCancelled) << saved.status();
  EXPECT_FALSE(manager_->SavedForPreemption());
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_OK(manager_->CheckForErrors());
  EXPECT_TRUE(*TrySave(3));
  EXPECT_TRUE(manager_->SavedForPreemption());
  EXPECT_THAT(Steps(), ElementsAre(1, 3));
}

}  // namespace
}  // namespace ckptree::testing
