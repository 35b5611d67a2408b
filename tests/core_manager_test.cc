// The manager of a training loop, row by row of what Orbax's does: the names
// in the comments are the rows that core/DESIGN.md, part 14, answers.

#include <csignal>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "ckptree/ckptree.h"
#include "ckptree/manager.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

constexpr absl::Duration kLong = absl::Minutes(2);

class ManagerTest : public ::testing::Test {
 protected:
  ManagerOptions Quiet(ManagerOptions options = {}) {
    options.store.collect = false;
    options.store.log = [this](LogSeverity, std::string_view where,
                               std::string_view text) {
      log_ += absl::StrFormat("%s: %s\n", where, text);
    };
    options.clock = [this] { return now_; };
    return options;
  }
  std::string path() const { return dir_ / "run"; }

  // Closes the manager there is and opens it again.
  void Open(ManagerOptions options = {}) {
    manager_.reset();
    absl::StatusOr<CheckpointManager> manager =
        CheckpointManager::Open(path(), Quiet(std::move(options)));
    ASSERT_OK(manager);
    manager_.emplace(*std::move(manager));
  }
  absl::Status Opening(ManagerOptions options) {
    return CheckpointManager::Open(path(), Quiet(std::move(options))).status();
  }

  static absl::Status Fill(StepBuilder& builder) {
    builder.PutInt("state/count", 7).PutJson("config", "{}");
    builder.SetItemType("config", ItemType::kJson);
    return builder.status();
  }
  absl::StatusOr<bool> TrySave(std::int64_t step,
                               SaveArguments arguments = {}) {
    return manager_->Save(step, Fill, arguments);
  }
  // Saves and waits; true where it was saved.
  bool Save(std::int64_t step, SaveArguments arguments = {}) {
    const absl::StatusOr<bool> saved = TrySave(step, std::move(arguments));
    EXPECT_OK(saved);
    EXPECT_OK(manager_->WaitUntilFinished(kLong));
    return saved.ok() && *saved;
  }
  bool SaveLoss(std::int64_t step, double loss) {
    return Save(step, {.metrics = {{"loss", loss}}});
  }
  std::vector<std::int64_t> Steps() { return manager_->AllSteps().value(); }
  std::optional<std::int64_t> Latest() {
    return manager_->LatestStep().value();
  }
  std::optional<std::int64_t> Best() { return manager_->BestStep().value(); }

  TempDir dir_;
  std::string log_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::optional<CheckpointManager> manager_;
};

// ---- A.4 of the vectors: gate, decision and retention together ----

std::optional<Preservation> KeepOf(const Json& json) {
  if (json.is_null()) return std::nullopt;
  EXPECT_EQ(json["kind"], "LatestN");
  return LatestN{json["n"].get<std::int64_t>()};
}

SaveDecision SaveOf(const Json& json) {
  const std::string kind = json["kind"];
  if (kind == "FixedInterval") return FixedInterval{json["n"]};
  if (kind == "SpecificSteps") {
    return SpecificSteps{json["steps"].get<std::vector<std::int64_t>>()};
  }
  if (kind == "Preemption") return OnPreemption{};
  if (kind == "Initial") return InitialSave{};
  EXPECT_EQ(kind, "Any");
  AnySave any;
  for (const Json& part : json["of"]) any.of.push_back(SaveOf(part));
  return any;
}

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
    options.preservation = KeepOf(vector["keep_policy"]);
    bool preempted = false;
    // The vectors name the steps at which the process is preempted.
    const SaveDecision decision = SaveOf(vector["save_policy"]);
    options.save_decision = CustomSave{[&](const SaveQuestion& asked) {
      SaveQuestion question = asked;
      question.preempted = preempted;
      return ShouldSave(decision, question).value();
    }};
    const std::string folder = dir_ / vector["id"].get<std::string>();
    ASSERT_OK_AND_ASSIGN(
        CheckpointManager manager,
        CheckpointManager::Open(folder, Quiet(std::move(options))));
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
  Open({.max_to_keep = 0});
  EXPECT_TRUE(Save(5));
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_THAT(log_, HasSubstr("the policy does not keep step 5"));
  EXPECT_TRUE(Save(5));  // InitialSave again: there is no step (D15).
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
  EXPECT_THAT(Steps(), ElementsAre(0, 3, 5, 6));
  // Without max_to_keep all are kept, whatever the period.
  Open({.keep_period = 100});
  for (std::int64_t step = 9; step <= 11; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(Steps().size(), 7u);
  EXPECT_EQ(Opening({.keep_period = 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opening({.keep_time_interval = absl::ZeroDuration()}).code(),
            Code::kInvalidArgument);
}

TEST_F(ManagerTest, TimesSurviveARestart) {  // D19
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

TEST_F(ManagerTest, BestSteps) {  // OPT-05, OPT-06, PP-09, CM-12, D5
  ManagerOptions options = {
      .max_to_keep = 2, .best_metric = "loss", .best_mode = BestN::Mode::kMin};
  Open(options);
  const std::vector<double> losses = {5, 2, 4, 3, 7, 1, 10, 9, 7, 4};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i == 5) Open(options);
    EXPECT_TRUE(SaveLoss(static_cast<std::int64_t>(i), losses[i]));
  }
  EXPECT_THAT(Steps(), ElementsAre(1, 5));
  EXPECT_THAT(Best(), Optional(5));
  // The newest went, as it was no better (D10).
  EXPECT_THAT(Latest(), Optional(5));
  EXPECT_THAT(log_, HasSubstr("which is the newest; this is said once"));
}

TEST_F(ManagerTest, BestByAFunction) {  // OPT-05
  const auto score = [](const PolicyStep& step) -> std::optional<double> {
    return step.Metric("acc").value_or(0) - step.Metric("loss").value_or(0);
  };
  Open({.max_to_keep = 1, .best_fn = score});
  EXPECT_TRUE(Save(1, {.metrics = {{"acc", 0.9}, {"loss", 0.5}}}));
  EXPECT_TRUE(Save(2, {.metrics = {{"acc", 0.8}, {"loss", 0.1}}}));
  EXPECT_TRUE(Save(3, {.metrics = {{"acc", 0.9}, {"loss", 0.6}}}));
  EXPECT_THAT(Steps(), ElementsAre(2));
  EXPECT_THAT(Best(), Optional(2));
  // Without it nothing is removed, and somebody is told.
  Open();
  EXPECT_EQ(manager_->store().Policy()->text, "all");
}

TEST_F(ManagerTest, WithoutMetrics) {  // OPT-07, CM-18
  Open({.max_to_keep = 2,
        .best_metric = "loss",
        .best_mode = BestN::Mode::kMin});
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_TRUE(Save(step));
  EXPECT_EQ(Steps().size(), 5u);
  EXPECT_EQ(Best(), std::nullopt);
  EXPECT_THAT(Latest(), Optional(4));
  Open({.max_to_keep = 1,
        .best_metric = "loss",
        .best_mode = BestN::Mode::kMin,
        .keep_checkpoints_without_metrics = false});
  // A NaN is no metric (D3).
  EXPECT_TRUE(SaveLoss(5, std::nan("")));
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(SaveLoss(6, 2));
  EXPECT_TRUE(SaveLoss(7, 3));
  EXPECT_THAT(Steps(), ElementsAre(6));
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
              HasSubstr("step 5 was saved and nothing was removed"));
  EXPECT_OK(manager_->WaitUntilFinished(kLong));  // Told once.
  EXPECT_THAT(Steps(), ElementsAre(2, 4, 5));
}

TEST_F(ManagerTest, ReadOnly) {  // OPT-16, D20
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
  EXPECT_OK(manager_->Restore());
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
  EXPECT_EQ(Opening({.save_decision = FixedInterval{0}}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opening({.preservation = LatestN{-1}}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opening({.max_saves_in_flight = 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opening({.save_timeout = absl::ZeroDuration()}).code(),
            Code::kInvalidArgument);
  // Nothing was made by any of them.
  EXPECT_EQ(Store::Open(path()).status().code(), Code::kNotFound);
}

TEST_F(ManagerTest, ThePolicyOfTheStore) {  // OPT-24, OPT-25
  Open({.max_to_keep = 2});
  EXPECT_EQ(manager_->store().Policy()->text, "latest(2)");
  // Options say nothing: what a program wanted before goes.
  Open();
  EXPECT_EQ(manager_->store().Policy()->text, "all");
  // What people set by hand stays until options say otherwise.
  ASSERT_OK(manager_->store().SetPolicy(LatestN{1}));
  Open();
  EXPECT_EQ(manager_->store().Policy()->text, "latest(1)");
  for (std::int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(Save(step));
  EXPECT_THAT(Steps(), ElementsAre(3));
  Open({.preservation = EveryNSteps{2}});
  EXPECT_EQ(manager_->store().Policy()->text, "every(2)");
  EXPECT_THAT(log_, HasSubstr("'latest(1)', set by hand, gives way"));
}

// ---- CM: the manager ----

TEST_F(ManagerTest, RootMetadataIsWrittenOnce) {  // CM-07, OPT-22, CM-25
  Open({.metadata = "{\"global\": \"foo\"}"});
  EXPECT_EQ(*manager_->store().Metadata(), "{\"global\": \"foo\"}");
  Open({.metadata = "{\"global\": \"bar\"}"});
  EXPECT_EQ(*manager_->store().Metadata(), "{\"global\": \"foo\"}");
}

TEST_F(ManagerTest, LatestIsTheGreatest) {  // CM-10, CM-11, CM-16, D6
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

TEST_F(ManagerTest, ForceDoesNotOverwrite) {  // CM-16, CM-17, D9
  Open();
  EXPECT_TRUE(Save(1));
  EXPECT_EQ(TrySave(1, {.force = true}).status().code(), Code::kAlreadyExists);
  EXPECT_FALSE(manager_->IsSavingInProgress());  // CM-28
  EXPECT_TRUE(Save(1, {.note = "again", .force = true, .overwrite = true}));
  EXPECT_EQ(manager_->Restore(AtStep(1))->info().note, "again");
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(ManagerTest, RestoreFindsSteps) {  // CM-19, CM-20, CM-21
  Open();
  EXPECT_EQ(manager_->Restore().status().code(), Code::kNotFound);
  EXPECT_TRUE(SaveLoss(1, 3));
  EXPECT_TRUE(SaveLoss(2, 1));
  EXPECT_TRUE(SaveLoss(3, 2));
  EXPECT_EQ(manager_->Restore()->step(), 3);
  EXPECT_EQ(manager_->Restore(AtStep(1))->step(), 1);
  EXPECT_EQ(manager_->Restore(ckptree::Best("loss"))->step(), 2);
  EXPECT_EQ(manager_->Restore(LatestHealthy())->step(), 3);
  EXPECT_THAT(std::string(manager_->Restore(AtStep(7)).status().message()),
              HasSubstr("no step 7"));
  EXPECT_OK(manager_->Restore(AtStep(1), {"state", "config"}));
  EXPECT_THAT(
      std::string(
          manager_->Restore(AtStep(1), {"optimizer"}).status().message()),
      HasSubstr("no item 'optimizer'; it has config, state"));
  // A save in flight is waited for.
  EXPECT_TRUE(*TrySave(4));
  EXPECT_EQ(manager_->Restore()->step(), 4);
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
  EXPECT_EQ(manager_->Restore(AtStep(1))->Metadata()->custom,
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
  EXPECT_OK(manager_->Restore(AtStep(2))->Value("metrics/x"));
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
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(Save(1));
  EXPECT_OK(manager_->Close());
}

TEST_F(ManagerTest,
       OneSaveAtATimeUnlessMoreAreAllowed) {  // SV-10, CM-28, SD-05
  absl::Notification go;
  const auto slow = [&go](StepBuilder& builder) {
    builder.Put("w", {.dtype = DType::kUint8,
                      .shape = {1 << 20},
                      .copy = [&go](std::uint64_t, std::span<std::byte> to) {
                        go.WaitForNotification();
                        std::fill(to.begin(), to.end(), std::byte{1});
                        return absl::OkStatus();
                      }});
    return builder.status();
  };
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
  EXPECT_EQ(manager_->line(), "again");
  EXPECT_THAT(Steps(), IsEmpty());
  for (std::int64_t step = 4; step <= 6; ++step) EXPECT_TRUE(Save(step));
  EXPECT_THAT(Steps(), ElementsAre(5, 6));  // Its own policy.
  EXPECT_EQ(manager_->store().Steps()->size(), 2u);
  Open({.line = "again"});
  EXPECT_THAT(Steps(), ElementsAre(5, 6));
  EXPECT_EQ(Opening({.line = "nowhere"}).code(), Code::kUnavailable);
  manager_.reset();
  EXPECT_EQ(Opening({.line = "nowhere"}).code(), Code::kNotFound);
}

}  // namespace
}  // namespace ckptree::testing
