// SPDX-License-Identifier: Apache-2.0

// Policies of a store: what leaves with a save, what stays, and what happens
// where a policy cannot be applied.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RetentionTest : public CoreTest {
 protected:
  absl::Status SaveInt(std::int64_t step, std::string_view branch = "") {
    StepBuilder builder = store_->Begin(step, {.branch = std::string(branch)});
    builder.PutInt("count", step);
    return Commit(std::move(builder));
  }
  // Sets it, and saves the steps.
  void Run(const Preservation& policy, const std::vector<std::int64_t>& steps) {
    ASSERT_OK(store_->SetPolicy(policy));
    for (const std::int64_t step : steps) ASSERT_OK(SaveInt(step));
  }
};

TEST_F(RetentionTest, RemovedStepsLeaveInTheCommitOfTheSave) {
  ASSERT_OK(store_->SetPolicy(LatestN{2}));
  for (std::int64_t step = 0; step < 6; ++step) {
    ASSERT_OK(SaveInt(step));
    std::vector<std::int64_t> expected;
    if (step > 0) expected.push_back(step - 1);
    expected.push_back(step);
    EXPECT_EQ(StepNumbers(), expected);
  }
  Open();
  // Creation, the policy, six saves: no commit for a victim.
  EXPECT_EQ(store_->Info().commits, 8u);
  EXPECT_THAT(StepNumbers(), ElementsAre(4, 5));
  // What is stored goes on without a word.
  ASSERT_OK(SaveInt(6));
  EXPECT_THAT(StepNumbers(), ElementsAre(5, 6));
  ExpectClean();
}

TEST_F(RetentionTest, StepsAreJudgedByNumberWhateverTheOrderOfSaves) {
  // Orbax keeps 5 and 3 until it is started again, then 3 and 6 of these.
  Run(LatestN{3}, {0, 5, 3, 6});
  EXPECT_THAT(StepNumbers(), ElementsAre(3, 5, 6));
}

TEST_F(RetentionTest, PinnedAndTaggedStepsStay) {
  Run(PreserveAll{}, {1, 2, 3, 4});
  ASSERT_OK(store_->Pin(1));
  ASSERT_OK(store_->Tag("good", 3));
  Run(LatestN{1}, {5});
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 3, 5));
  ASSERT_OK(store_->Unpin(1));
  ASSERT_OK(store_->Untag("good"));
  ASSERT_OK(SaveInt(6));
  EXPECT_THAT(StepNumbers(), ElementsAre(6));
}

TEST_F(RetentionTest, TheTimeOfAStepIsStored) {
  ASSERT_OK(store_->SetPolicy(EveryNSeconds{absl::Hours(3)}));
  const absl::Time start = absl::FromUnixSeconds(1'000'000);
  const auto save = [&](std::int64_t step) {
    StepBuilder builder =
        store_->Begin(step, {.time = start + step * absl::Hours(1)});
    builder.PutInt("count", step);
    return Commit(std::move(builder));
  };
  for (std::int64_t step = 0; step < 10; ++step) {
    ASSERT_OK(save(step));
    if (step == 4) Open();
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(0, 3, 6, 9));
  // The clock is set back: what is there stays, what comes waits for it.
  ASSERT_OK(store_->SetPolicy(EveryNSeconds{absl::Hours(3)} |
                              Preservation(LatestDuration{absl::Hours(2)})));
  StepBuilder late = store_->Begin(20, {.time = start - absl::Hours(100)});
  late.PutInt("count", 20);
  ASSERT_OK(Commit(std::move(late)));
  EXPECT_THAT(StepNumbers(), ElementsAre(0, 3, 6, 9, 20));
}

TEST_F(RetentionTest, HealthyStaysWhileNewerOnesAreNot) {
  ASSERT_OK(store_->SetPolicy(LatestN{2} | Preservation(Healthy{})));
  for (std::int64_t step = 1; step <= 6; ++step) {
    const float value = step >= 3 ? std::nanf("") : 1.0f;
    StepBuilder builder = store_->Begin(step);
    builder.Put("x", {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
    ASSERT_OK(Commit(std::move(builder)));
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(2, 5, 6));
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 2);
  EXPECT_EQ(store_->Resolve(ParseSelector("healthy").value())->step, 2);
  ASSERT_OK(store_->Delete(2));
  EXPECT_THAT(std::string(store_->Resolve(LatestHealthy()).status().message()),
              HasSubstr("no step is without NaN and Inf"));
}

// One array of one float, beside what has no NaN whatever its value.
absl::Status SaveFloat(Store& store, std::int64_t step, float value) {
  const std::int32_t whole = 7;
  StepBuilder builder = store.Begin(step);
  builder.Put("x", {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
  builder.Put("n", {.dtype = DType::kInt32, .shape = {1}, .data = &whole});
  builder.Put("none", {.dtype = DType::kFloat32, .shape = {0}});
  return std::move(builder).Commit().WaitCommitted(kLong);
}

StoreOptions WithoutStatistics(StoreOptions options) {
  options.statistics = false;
  return options;
}

// A repair says so in its note.
TEST_F(RetentionTest, AStepThatLostLeavesIsNotHealthy) {
  ASSERT_OK(store_->SetPolicy(LatestN{1} | Preservation(Healthy{})));
  for (const std::int64_t step : {1, 2, 3}) {
    StepBuilder builder = store_->Begin(step);
    builder.PutInt("i", step);
    if (step > 1) builder.SetNote("[recovered: 1 of 2 leaves lost] of then");
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
  }
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 1);
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 3));
}

TEST_F(RetentionTest, HealthThatIsNotKnownIsNotHealthy) {
  const auto unknown = [this](std::int64_t step) {
    return store_->Resolve(AtStep(step))->unknown_leaves;
  };
  ASSERT_OK(SaveFloat(*store_, 1, 1));
  EXPECT_EQ(unknown(1), 0u);
  Open(WithoutStatistics(Options()));
  // What was counted before is known still.
  ASSERT_OK(SaveFloat(*store_, 2, 1));
  EXPECT_EQ(unknown(2), 0u);
  ASSERT_OK(SaveFloat(*store_, 3, std::nanf("")));
  ASSERT_OK(SaveFloat(*store_, 4, std::nanf("")));
  EXPECT_EQ(unknown(3), 1u);
  EXPECT_EQ(unknown(4), 1u);
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 2);
  // Also where the base is read anew.
  Open(WithoutStatistics(Options()));
  ASSERT_OK(SaveFloat(*store_, 5, std::nanf("")));
  EXPECT_EQ(unknown(5), 1u);
  // A save with statistics says it, though the value is the same.
  Open();
  ASSERT_OK(SaveFloat(*store_, 6, std::nanf("")));
  EXPECT_EQ(unknown(6), 0u);
  EXPECT_EQ(store_->Resolve(AtStep(6))->nonfinite_leaves, 1u);
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 2);
  ASSERT_OK(SaveFloat(*store_, 7, 3));
  EXPECT_EQ(unknown(7), 0u);
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 7);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       store_->Verify({.level = VerifyOptions::Level::kDeep}));
  EXPECT_TRUE(report.findings.empty());
  for (const std::int64_t step : {1, 2, 7}) ASSERT_OK(store_->Delete(step));
  const std::string told(store_->Resolve(LatestHealthy()).status().message());
  EXPECT_THAT(told, HasSubstr("of 3 steps statistics were not recorded"));
}

// Leaves in their record, in a pack and in chunks, of which the first save did
// not say whether they have a NaN, and which never change.
TEST_F(RetentionTest, WhatDoesNotChangeIsKnownOnceStatisticsAreOn) {
  const std::vector<float> ones(100'000, 1.0F);
  const auto save = [&](std::int64_t step) {
    StepBuilder builder = store_->Begin(step);
    for (const std::int64_t count : {4, 1000, 100'000}) {
      builder.Put("k" + std::to_string(count),
                  {.dtype = DType::kFloat32,
                   .shape = {count},
                   .data = ones.data(),
                   .size_bytes = static_cast<std::size_t>(count) * 4});
    }
    return Commit(std::move(builder));
  };
  Open(WithoutStatistics(Options()));
  ASSERT_OK(save(1));
  EXPECT_EQ(store_->Resolve(AtStep(1))->unknown_leaves, 3u);
  Open();
  for (const std::int64_t step : {2, 3}) {
    ASSERT_OK(save(step));
    const StepInfo info = store_->Resolve(AtStep(step)).value();
    EXPECT_EQ(info.unknown_leaves, 0u) << step;
    EXPECT_EQ(info.changed_leaves, 0u) << step;
    EXPECT_EQ(info.new_bytes, 0u) << step;
    const Step read = Restored(AtStep(step));
    for (const std::string_view name : {"k4", "k1000", "k100000"}) {
      const absl::StatusOr<LeafDetail> leaf = read.Detail(At(name));
      ASSERT_OK(leaf);
      EXPECT_EQ(leaf->since_step, 1) << name;
      EXPECT_TRUE(leaf->statistics.has_value()) << name;
    }
  }
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 3);
  ExpectClean();
}

TEST_F(RetentionTest, OfTypesWithoutNanHealthIsAlwaysKnown) {
  Open(WithoutStatistics(Options()));
  const float value = 1;
  for (const DType dtype : AllDTypes()) {
    StepBuilder builder = store_->Begin(static_cast<std::int64_t>(dtype));
    const Bytes bytes(16);
    builder.Put("x", {.dtype = dtype, .shape = {1}, .data = bytes.data()});
    builder.PutFloat("scalar", value);
    ASSERT_OK(Commit(std::move(builder)));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store_->Steps());
  for (const StepInfo& info : steps) {
    const std::string name(Name(static_cast<DType>(info.step)));
    const bool has_nan =
        name.find("float") != name.npos || name.find("complex") != name.npos;
    const bool is_small =
        name.starts_with("float4") || name.starts_with("float6_");
    EXPECT_EQ(info.unknown_leaves, has_nan && !is_small ? 1u : 0u) << name;
  }
}

TEST_F(RetentionTest, UnknownStepsTakeNoPlaceOfHealthyOnes) {
  ASSERT_OK(SaveFloat(*store_, 1, 1));
  ASSERT_OK(SaveFloat(*store_, 2, 2));
  Open(WithoutStatistics(Options()));
  for (const std::int64_t step : {3, 4, 5}) {
    ASSERT_OK(SaveFloat(*store_, step, std::nanf("")));
  }
  Open();
  const auto kept = [this](const Preservation& policy) {
    std::vector<std::int64_t> steps;
    const absl::StatusOr<PolicyReport> report =
        store_->PreviewPolicy("", policy);
    EXPECT_OK(report);
    if (!report.ok()) return steps;
    for (const PolicyVerdict& verdict : report->steps) {
      if (verdict.kept) steps.push_back(verdict.step);
    }
    return steps;
  };
  EXPECT_THAT(kept(Healthy{}), ElementsAre(2, 5));
  EXPECT_THAT(kept(Healthy{2}), ElementsAre(1, 2, 5));
  EXPECT_THAT(kept(LatestN{4} & Preservation(Healthy{}) | LatestN{1}),
              ElementsAre(2, 5));
  ASSERT_OK(store_->SetPolicy(Healthy{}));
  ASSERT_OK(SaveFloat(*store_, 6, std::nanf("")));  // The value of step 5.
  EXPECT_THAT(StepNumbers(), ElementsAre(2, 6));
}

TEST_F(RetentionTest, PoliciesOfHealthAreRefusedWithoutStatistics) {
  const Preservation policies[] = {
      Healthy{}, LatestN{2} | Preservation(Healthy{2}),
      LatestN{2} | (LatestN{9} & Preservation(Healthy{}))};
  const auto expect_refused = [](const absl::Status& status,
                                 const Preservation& policy) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("statistics"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(Text(policy)));
  };
  ASSERT_OK(SaveFloat(*store_, 1, 1));
  Open(WithoutStatistics(Options()));
  for (const Preservation& policy : policies) {
    expect_refused(store_->SetPolicy(policy), policy);
    expect_refused(store_->PreviewPolicy("", policy).status(), policy);
  }
  EXPECT_OK(store_->SetPolicy(LatestN{2}));
  // Who only reads makes no such step.
  ASSERT_OK_AND_ASSIGN(
      const Store reader,
      Store::Open(path(), WithoutStatistics(ToRead(Options()))));
  EXPECT_OK(reader.PreviewPolicy("", policies[0]));
  // One that is there already removes nothing, and says why.
  Open();
  ASSERT_OK(store_->SetPolicy(policies[0]));
  Open(WithoutStatistics(Options()));
  EXPECT_EQ(store_->Policy()->applicable.code(),
            absl::StatusCode::kFailedPrecondition);
  for (const std::int64_t step : {2, 3}) {
    const float value = std::nanf("");
    StepBuilder builder = store_->Begin(step);
    builder.Put("x", {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
    SaveHandle handle = std::move(builder).Commit();
    ASSERT_OK(handle.WaitCommitted(kLong));
    EXPECT_THAT(std::string(handle.PolicyProblem().message()),
                HasSubstr("statistics off"));
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

TEST_F(RetentionTest, AFunctionThatFailsRemovesNothing) {
  int calls = 0;
  const auto with = [&](PreserveFn function) {
    return CustomPreservation{"mine", std::move(function)};
  };
  ASSERT_OK(store_->SetPolicy(with([&calls](std::span<const PolicyStep> steps) {
    ++calls;
    return std::vector<bool>(steps.size(), false);
  })));
  ASSERT_OK(SaveInt(0));
  ASSERT_OK(SaveInt(1));
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(StepNumbers(), ElementsAre(1));
  // The same name, another function.
  ASSERT_OK(store_->SetPolicy(with(
      [](std::span<const PolicyStep>) { return std::vector<bool>{true}; })));
  SaveHandle save = Start(2, RandomBytes(10, 1));
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(
      std::string(save.PolicyProblem().message()),
      HasSubstr("step 2 was saved and the policy was not applied: function "
                "'mine' gave 1 answers for 2 steps"));
  ASSERT_OK(store_->SetPolicy(
      with([](std::span<const PolicyStep>) -> std::vector<bool> {
        throw std::runtime_error("no idea");
      })));
  save = Start(3, RandomBytes(10, 1));
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(std::string(save.PolicyProblem().message()),
              HasSubstr("threw: no idea"));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
  // Another program does not have it.
  Open();
  EXPECT_EQ(store_->Policy()->text, "custom(mine)");
  EXPECT_EQ(store_->Policy()->applicable.code(),
            absl::StatusCode::kFailedPrecondition);
  save = Start(4, RandomBytes(10, 1));
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(std::string(save.PolicyProblem().message()),
              HasSubstr("function 'mine', which this program does not have"));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(store_->ApplyPolicy().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->PreviewPolicy().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RetentionTest, ARuleOfANewerEngineRemovesNothing) {
  ASSERT_OK(SaveInt(1));
  ASSERT_OK(internal::StoreEngine::Of(*store_).settings().Adopt(
      "", {.policy = "latest(1) | geometric(2)", .set_by = "9.9.9"}));
  Open();
  SaveHandle save = Start(2, RandomBytes(10, 1));
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(std::string(save.PolicyProblem().message()),
              HasSubstr("set by ckptree 9.9.9"));
  EXPECT_THAT(std::string(save.PolicyProblem().message()),
              HasSubstr("'geometric' is no rule that this engine knows"));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
  EXPECT_THAT(std::string(store_->PreviewPolicy().status().message()),
              HasSubstr("geometric"));
  ExpectClean();
  ASSERT_OK(store_->SetPolicy(LatestN{1}));
  EXPECT_THAT(*store_->ApplyPolicy(), ElementsAre(1));
}

TEST_F(RetentionTest, PreviewSaysWhyAndWhatItFrees) {
  for (std::int64_t step = 0; step <= 5; ++step) {
    ASSERT_OK(
        Save(step, RandomBytes(100'000, static_cast<std::uint64_t>(step))));
  }
  ASSERT_OK(store_->Pin(1));
  ASSERT_OK(store_->Tag("good", 4));
  ASSERT_OK(store_->SetPolicy(LatestN{2} | Preservation(EveryNSteps{2})));
  ASSERT_OK_AND_ASSIGN(const PolicyReport report, store_->PreviewPolicy());
  EXPECT_EQ(report.policy, "latest(2) | every(2)");
  std::string text;
  for (const PolicyVerdict& verdict : report.steps) {
    text += absl::StrFormat("%d%s", verdict.step, verdict.kept ? ":" : " goes");
    for (const std::string& why : verdict.why) text += " " + why;
    text += "\n";
  }
  EXPECT_EQ(text,
            "0: every(2)\n"
            "1: pinned\n"
            "2: every(2)\n"
            "3 goes\n"
            "4: latest(2) every(2) tag good\n"
            "5: latest(2)\n");
  EXPECT_THAT(StepNumbers(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_GT(report.freed.bytes, 90'000u);
  EXPECT_THAT(*store_->ApplyPolicy(), ElementsAre(3));
  EXPECT_THAT(*store_->ApplyPolicy(), IsEmpty());
  EXPECT_EQ(store_->Collect()->bytes_freed, report.freed.bytes);
  // Of a policy that is not set.
  ASSERT_OK_AND_ASSIGN(const PolicyReport other,
                       store_->PreviewPolicy("", LatestN{1}));
  EXPECT_EQ(std::count_if(other.steps.begin(), other.steps.end(),
                          [](const PolicyVerdict& v) { return !v.kept; }),
            2);
  EXPECT_EQ(store_->Policy()->text, "latest(2) | every(2)");
  // Readers preview, too.
  Open(ReadOnly());
  EXPECT_OK(store_->PreviewPolicy());
  EXPECT_EQ(store_->SetPolicy(LatestN{1}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RetentionTest, AgesCountFromTheLastStepNotFromNow) {
  // A run that ended long ago.
  const absl::Time long_ago = absl::FromUnixSeconds(1'000'000);
  for (std::int64_t step = 0; step < 4; ++step) {
    StepBuilder builder =
        store_->Begin(step, {.time = long_ago + step * absl::Hours(1)});
    builder.PutInt("count", step);
    ASSERT_OK(Commit(std::move(builder)));
  }
  ASSERT_OK(store_->SetPolicy(LatestDuration{absl::Hours(1)}));
  EXPECT_THAT(*store_->ApplyPolicy(), ElementsAre(0, 1));
  EXPECT_THAT(StepNumbers(), ElementsAre(2, 3));
}

TEST_F(RetentionTest, DamagedTagsRemoveNothing) {
  Run(PreserveAll{}, {1, 2});
  ASSERT_OK(store_->Tag("good", 1));
  // A row that is no tag: what it named is not known.
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Put(schema::Space::kRecords, schema::TagKey("good"), "x");
  ASSERT_OK(internal::StoreEngine::Of(*store_)
                .mutable_database()
                ->Commit(std::move(request))
                .status);
  Open();
  ASSERT_OK(store_->SetPolicy(LatestN{1}));
  SaveHandle save = Start(3, RandomBytes(10, 1));
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(std::string(save.PolicyProblem().message()),
              HasSubstr("are damaged"));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(store_->ApplyPolicy().ok());
}

TEST_F(RetentionTest, FunctionsOfOneNameOnTwoBranches) {
  Run(PreserveAll{}, {1});
  ASSERT_OK(store_->Fork(AtStep(1), "a"));
  const auto keep = [](std::int64_t rest) {
    return KeepIf{"function", [rest](const PolicyStep& step) {
                    return step.step % 2 == rest;
                  }};
  };
  ASSERT_OK(store_->SetPolicy(keep(0), "a"));
  ASSERT_OK(store_->SetPolicy(keep(1)));
  for (const std::int64_t step : {2, 3, 4}) ASSERT_OK(SaveInt(step, "a"));
  EXPECT_EQ(store_->Steps("a")->size(), 2u);  // 2 and 4.
}

// Whoever looks while a save replaces all there is sees one step.
TEST_F(RetentionTest, NobodySeesTheListInBetween) {
  ASSERT_OK(SaveInt(0));
  ASSERT_OK(store_->SetPolicy(LatestN{1}));
  std::atomic<bool> done{false};
  std::atomic<int> looked{0};
  std::thread looker([&] {
    while (!done) {
      EXPECT_EQ(store_->Steps()->size(), 1u);
      EXPECT_OK(store_->Resolve(Latest()));
      ++looked;
    }
  });
  for (std::int64_t step = 1; step <= 300; ++step) {
    EXPECT_OK(SaveInt(step));
  }
  done = true;
  looker.join();
  EXPECT_GT(looked, 300);
}

TEST_F(RetentionTest, BranchesHaveTheirOwn) {
  Run(LatestN{1}, {1});
  ASSERT_OK(store_->Fork(AtStep(1), "a"));
  for (const std::int64_t step : {2, 3}) ASSERT_OK(SaveInt(step, "a"));
  ASSERT_OK(SaveInt(2));
  EXPECT_THAT(StepNumbers(), ElementsAre(2));
  EXPECT_EQ(store_->Steps("a")->size(), 2u);
  ASSERT_OK(store_->SetPolicy(LatestN{1}, "a"));
  ASSERT_OK(SaveInt(4, "a"));
  EXPECT_EQ(store_->Steps("a")->size(), 1u);
  EXPECT_EQ(store_->SetPolicy(LatestN{1}, "b").code(),
            absl::StatusCode::kNotFound);
  // The next branch has the number again, and no policy.
  ASSERT_OK(store_->DropBranch("a"));
  ASSERT_OK(store_->Fork(AtStep(2), "c"));
  EXPECT_EQ(store_->Policy("c")->text, "");
  Open();
  EXPECT_EQ(store_->Policy("c")->text, "");
  EXPECT_EQ(store_->Policy()->text, "latest(1)");
  ExpectClean();
}

TEST_F(RetentionTest, MetadataOfTheRun) {
  EXPECT_EQ(*store_->Metadata(), "");
  ASSERT_OK(store_->SetMetadata("{\"lr\": 1}"));
  ASSERT_OK(store_->SetPolicy(LatestN{3}));
  Open();
  EXPECT_EQ(*store_->Metadata(), "{\"lr\": 1}");
  EXPECT_EQ(store_->Policy()->text, "latest(3)");
  EXPECT_EQ(store_->SetMetadata("\xff").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->SetMetadata(std::string((8 << 20) + 1, ' ')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->SetMetadata("1", "nowhere").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RetentionTest, RecoverCarriesThem) {
  Run(LatestN{2}, {1, 2, 3});
  ASSERT_OK(store_->SetMetadata("{}"));
  ASSERT_OK(store_->Fork(AtStep(3), "a"));
  ASSERT_OK(store_->SetPolicy(Healthy{}, "a"));
  ASSERT_OK(store_->Close());
  ASSERT_OK(Recover(path(), dir_ / "copy"));
  ASSERT_OK_AND_ASSIGN(Store copy, Store::Open(dir_ / "copy", Options()));
  EXPECT_EQ(copy.Policy()->text, "latest(2)");
  EXPECT_EQ(*copy.Metadata(), "{}");
  EXPECT_EQ(copy.Policy("a")->text, "healthy(1)");
  EXPECT_EQ(copy.Steps()->size(), 2u);
}

TEST_F(RetentionTest, ManyRemovedStepsLeaveWithTheNextSaves) {
  // Half a KiB of note each: more than 3 MiB of rows.
  constexpr std::int64_t kSteps = 6000;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    StepBuilder builder = store_->Begin(step);
    builder.PutInt("count", step).SetNote(std::string(500, 'x'));
    const SaveHandle save = std::move(builder).Commit();
    if (step % 500 == 499) {
      ASSERT_OK(store_->Flush());
    }
  }
  Run(LatestN{1}, {kSteps});
  EXPECT_GT(StepNumbers().size(), 100u);
  EXPECT_LT(StepNumbers().size(), 5000u);
  ASSERT_OK(SaveInt(kSteps + 1));
  EXPECT_THAT(StepNumbers(), ElementsAre(kSteps + 1));
  ExpectClean();
}

TEST_F(RetentionTest, TagsAndPinsBesideSavesAreSafe) {
  ASSERT_OK(SaveInt(0));
  ASSERT_OK(store_->SetPolicy(LatestN{1}));
  std::atomic<bool> done{false};
  std::vector<std::int64_t> tagged, pinned;
  std::thread names([&] {
    for (int i = 0; !done; ++i) {
      const auto latest = store_->Resolve(Latest());
      ASSERT_OK(latest);
      const std::string tag = absl::StrFormat("t%d", i);
      if (i % 2 == 0 && store_->Tag(tag, latest->step).ok()) {
        tagged.push_back(latest->step);
      }
      if (i % 2 == 1 && store_->Pin(latest->step).ok()) {
        pinned.push_back(latest->step);
      }
    }
  });
  for (std::int64_t step = 1; step <= 300; ++step) {
    EXPECT_OK(SaveInt(step));
  }
  done = true;
  names.join();
  EXPECT_FALSE(tagged.empty());
  EXPECT_FALSE(pinned.empty());
  for (const std::int64_t step : tagged) {
    EXPECT_OK(store_->Resolve(AtStep(step)));
  }
  for (const std::int64_t step : pinned) {
    EXPECT_TRUE(store_->Resolve(AtStep(step))->pinned);
  }
  Open();
  ASSERT_OK_AND_ASSIGN(const std::vector<TagInfo> tags, store_->Tags());
  for (const TagInfo& tag : tags) {
    EXPECT_OK(store_->Resolve(Tagged(tag.name)));
  }
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
