// SPDX-License-Identifier: Apache-2.0

// No policy takes the newest step, and none is taken that would keep nothing.

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NewestStepTest : public CoreTest {
 protected:
  absl::Status SaveMetric(std::int64_t step, double loss,
                          bool overwrite = false) {
    StepBuilder builder = store_->Begin(step, {.overwrite = overwrite});
    builder.PutInt("count", step).SetMetric("loss", loss);
    return Commit(std::move(builder));
  }
  absl::Status SaveInt(std::int64_t step, std::string_view branch = "") {
    StepBuilder builder = store_->Begin(step, {.branch = std::string(branch)});
    builder.PutInt("count", step);
    return Commit(std::move(builder));
  }
  // `value` as a step, new or not, without the steps after it.
  absl::Status SaveWithoutLater(std::int64_t step, int value) {
    StepBuilder builder =
        store_->Begin(step, {.overwrite = true, .delete_later = true});
    builder.PutInt("count", value);
    return Commit(std::move(builder));
  }
  // Sets it, and saves the steps.
  void Run(const Preservation& policy, const std::vector<std::int64_t>& steps) {
    ASSERT_OK(store_->SetPolicy(policy));
    for (const std::int64_t step : steps) ASSERT_OK(SaveInt(step));
  }
};

// A run that starts again below its newest step lost each of its saves in the
// commit of the save, and every save was acknowledged.
TEST_F(NewestStepTest, ARunBelowItsNewestStepIsRefused) {
  Run(LatestN{2}, {100, 200, 300});
  for (const bool overwrite : {false, true}) {
    StepBuilder builder = store_->Begin(110, {.overwrite = overwrite});
    builder.PutInt("count", 1);
    EXPECT_THAT(Commit(std::move(builder)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         ::testing::AllOf(
                             HasSubstr("step 110 was not saved"),
                             HasSubstr("up to 300"), HasSubstr("latest(2)"),
                             HasSubstr("delete_after"), HasSubstr("fork"))));
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(200, 300));
  ExpectClean();
  // What the error names: a fork, or without those that come later.
  ASSERT_OK(store_->Fork(AtStep(200), "again"));
  ASSERT_OK(SaveInt(210, "again"));
  EXPECT_EQ(store_->Steps("again")->size(), 1u);
  ASSERT_OK(store_->Delete(300));
  for (const std::int64_t step : {210, 220, 230}) {
    ASSERT_OK(SaveInt(step));
    EXPECT_EQ(StepNumbers().back(), step);
    EXPECT_EQ(*Restored(AtStep(step)).Value("count")->Int(), step);
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(220, 230));
  ExpectClean();
}

// Whatever the policy: each save that was acknowledged is there until another
// is.
TEST_F(NewestStepTest, TheNewestStepStays) {
  const auto none = [](std::span<const PolicyStep> steps) {
    return std::vector<bool>(steps.size(), false);
  };
  std::int64_t step = 0;
  for (const Preservation& policy : std::vector<Preservation>{
           LatestN{1}, EveryNSteps{1000}, Healthy{},
           BestN{.metric = "loss",
           .mode = BestMode::kMax,
           .n = 1,
           .keep_without_metrics = false},
           LatestDuration{}, Budget{1}, CustomPreservation{"none", none}}) {
    SCOPED_TRACE(Text(policy));
    ASSERT_OK(store_->SetPolicy(policy));
    for (int i = 0; i < 3; ++i) {
      ++step;
      StepBuilder builder = store_->Begin(step);
      const float nan = std::nanf("");
      builder.PutInt("count", step)
          .Put("x", {.dtype = DType::kFloat32, .shape = {1}, .data = &nan});
      ASSERT_OK(Commit(std::move(builder)));
      EXPECT_THAT(StepNumbers(), ElementsAre(step));
      EXPECT_EQ(*Restored(Latest()).Value("count")->Int(), step);
      EXPECT_THAT(*store_->ApplyPolicy(), IsEmpty());
      EXPECT_THAT(StepNumbers(), ElementsAre(step));
    }
  }
  EXPECT_EQ(store_->PreviewPolicy("", EveryNSteps{1000})->steps.at(0).why,
            std::vector<std::string>{"newest"});
  ExpectClean();
}

TEST_F(NewestStepTest, APolicyThatMayKeepNothingIsRefused) {
  ASSERT_OK(SaveInt(1));
  const BestN best = {.metric = "loss", .mode = BestMode::kMin, .n = 2};
  for (const char* text :
       {"latest(0)", "steps(5)", "steps(1)", "latest(3) & every(7)",
        "healthy(0)", "best(loss, min, 0)", "every(7, last=0)",
        "closest(7, last=0)", "latest(0) | steps(5)",
        "(all | steps(1)) & steps(1)", "best(loss, min, 2) & healthy"}) {
    const absl::StatusOr<Preservation> policy = ParsePreservation(text);
    ASSERT_OK(policy) << text;
    EXPECT_THAT(store_->SetPolicy(*policy),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr("may keep nothing"),
                                          HasSubstr("| latest(1)"))))
        << text;
    EXPECT_FALSE(store_->PreviewPolicy("", *policy).ok()) << text;
    // As the error says.
    EXPECT_OK(store_->SetPolicy(*policy | LatestN{1})) << text;
  }
  for (const Preservation& policy :
       {Preservation(EveryNSteps{7}), Preservation(Healthy{}),
        Preservation(best), Preservation(AllOf{{PreserveAll{}, LatestN{2}}}),
        Preservation(AnyOf{{LatestN{0}, EveryNSteps{7}}})}) {
    EXPECT_OK(store_->SetPolicy(policy)) << Text(policy);
  }
}

// By a metric, too: a worse step stays while it is the newest.
TEST_F(NewestStepTest, TheBestAndTheNewest) {
  ASSERT_OK(store_->SetPolicy(
      BestN{.metric = "loss", .mode = BestMode::kMin, .n = 2}));
  const std::vector<double> losses = {5, 2, 4, 3, 7, 1, 10, 9, 7, 4};
  const std::vector<std::vector<std::int64_t>> live = {
      {0},    {0, 1},    {1, 2},    {1, 3},    {1, 3, 4},
      {1, 5}, {1, 5, 6}, {1, 5, 7}, {1, 5, 8}, {1, 5, 9}};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    ASSERT_OK(SaveMetric(static_cast<std::int64_t>(i), losses[i]));
    EXPECT_EQ(StepNumbers(), live[i]) << i;
    if (i == 4) Open();  // Metrics are part of the step.
  }
  // Below the newest one that is no better is refused, also where it would take
  // the place of one that is kept: that stays.
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("best(loss, min, 2)"));
  EXPECT_THAT(SaveMetric(6, 8), refused);
  EXPECT_THAT(SaveMetric(5, 99, /*overwrite=*/true), refused);
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 5, 9));
  EXPECT_EQ(store_->Resolve(AtStep(5))->metrics[0].second, 1);
  ASSERT_OK(SaveMetric(8, 1.5));
  EXPECT_THAT(StepNumbers(), ElementsAre(5, 8, 9));
  // The newest may be overwritten by a worse one.
  ASSERT_OK(SaveMetric(9, 60, /*overwrite=*/true));
  EXPECT_THAT(StepNumbers(), ElementsAre(5, 8, 9));
  ASSERT_OK(SaveMetric(10, 1));
  EXPECT_THAT(StepNumbers(), ElementsAre(5, 10));
  ExpectClean();
  Open();
  EXPECT_THAT(StepNumbers(), ElementsAre(5, 10));
  ASSERT_OK(store_->Collect());
  ExpectClean();
}

TEST_F(NewestStepTest, StaysWithItsOwnSave) {
  Run(LatestN{1}, {7});
  StepBuilder builder = store_->Begin(1, {.ignore_policy = true});
  builder.PutInt("count", 1);
  ASSERT_OK(Commit(std::move(builder)));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 7));
  ASSERT_OK(SaveInt(8));
  EXPECT_THAT(StepNumbers(), ElementsAre(8));
}

TEST_F(NewestStepTest, LaterStepsLeaveInTheCommitOfASave) {
  Run(LatestN{3}, {1, 2, 3});
  ASSERT_OK(store_->Fork(AtStep(3), "other"));
  ASSERT_OK(SaveInt(9, "other"));
  ASSERT_OK(SaveWithoutLater(2, 20));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
  EXPECT_EQ(*Restored(Latest()).Value("count")->Int(), 20);
  EXPECT_EQ(store_->Steps("other")->size(), 1u);
  // The policy judges as if they had not been there.
  for (const std::int64_t step : {3, 4}) ASSERT_OK(SaveInt(step));
  EXPECT_THAT(StepNumbers(), ElementsAre(2, 3, 4));
  ASSERT_OK(store_->SetPolicy(LatestN{1}));
  ASSERT_OK(SaveWithoutLater(3, 30));
  EXPECT_THAT(StepNumbers(), ElementsAre(3));
  ASSERT_OK(SaveWithoutLater(1, 10));
  EXPECT_THAT(StepNumbers(), ElementsAre(1));
  Open();
  EXPECT_THAT(StepNumbers(), ElementsAre(1));
  EXPECT_EQ(*Restored(Latest()).Value("count")->Int(), 10);
  ASSERT_OK(store_->Collect());
  ExpectClean();
}

TEST_F(NewestStepTest, ALaterStepThatIsHeldKeepsThemAll) {
  for (const std::int64_t step : {1, 2, 3}) ASSERT_OK(SaveInt(step));
  ASSERT_OK(store_->Tag("good", AtStep(3)));
  EXPECT_THAT(SaveWithoutLater(1, 10),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(HasSubstr("step 3"),
                                        HasSubstr("tagged 'good'"))));
  ASSERT_OK(store_->Untag("good"));
  ASSERT_OK(store_->Pin(3));
  EXPECT_THAT(SaveWithoutLater(1, 10),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("step 3 is pinned")));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
  EXPECT_EQ(*Restored(AtStep(1)).Value("count")->Int(), 1);
  ExpectClean();
  // Those before it may be.
  ASSERT_OK(store_->Unpin(3));
  ASSERT_OK(store_->Pin(1));
  ASSERT_OK(SaveWithoutLater(2, 20));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace ckptree::testing
