// SPDX-License-Identifier: Apache-2.0

// The policies against the decisions of Orbax's, which were recorded from it
// (tests/core/policy_vectors.jsonl), and the rules that are ours.

#include "ckptree/preservation.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/save_decision.h"
#include "core/policy/retention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/policy_vector.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;

// ---- the vectors ----

absl::Time At(std::int64_t seconds) { return absl::FromUnixSeconds(seconds); }

// Steps with the metrics that belong to them.
class List {
 public:
  void Add(std::int64_t step, absl::Time time, const Json& metric) {
    std::vector<std::pair<std::string, double>> metrics;
    if (metric == "NaN") metrics.emplace_back("m", std::nan(""));
    if (metric.is_number()) metrics.emplace_back("m", metric.get<double>());
    metrics_[step] = std::move(metrics);
    PolicyStep entry{.step = step, .time = time};
    entry.metrics = metrics_[step];
    steps_.push_back(entry);
  }
  void Keep(const std::vector<bool>& kept) {
    std::vector<PolicyStep> left;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) left.push_back(steps_[i]);
    }
    steps_ = std::move(left);
  }
  std::vector<std::int64_t> Numbers() const {
    std::vector<std::int64_t> numbers;
    for (const PolicyStep& step : steps_) numbers.push_back(step.step);
    return numbers;
  }
  const std::vector<PolicyStep>& steps() const { return steps_; }

 private:
  std::map<std::int64_t, std::vector<std::pair<std::string, double>>> metrics_;
  std::vector<PolicyStep> steps_;
};

List ListOf(const Json& vector) {
  List list;
  for (std::size_t i = 0; i < vector["steps"].size(); ++i) {
    const std::int64_t step = vector["steps"][i];
    list.Add(step, At(step),
             vector.contains("metrics") ? vector["metrics"][i] : Json());
  }
  return list;
}

std::vector<std::size_t> Indices(const std::vector<bool>& kept) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) indices.push_back(i);
  }
  return indices;
}

// A policy that is refused must be so at construction, and at use as well.
void ExpectRefused(const Preservation& policy) {
  EXPECT_FALSE(Check(policy).ok());
  EXPECT_FALSE(Preserve(policy, {}).ok());
}

// A.1: one decision.
void OneShot(const Json& vector) {
  const Preservation policy = KeepOf(vector["policy"]);
  if (vector.contains("error")) return ExpectRefused(policy);
  ASSERT_OK(Check(policy));
  const List list = ListOf(vector);
  ASSERT_OK_AND_ASSIGN(const std::vector<bool> kept,
                       Preserve(policy, list.steps()));
  ASSERT_EQ(kept.size(), list.steps().size());
  const Json mine = Indices(kept);
  if (vector.contains("decision")) {
    // One of the decisions in which this is meant to differ.
    EXPECT_THAT(vector["accept"].get<std::vector<Json>>(),
                ::testing::Contains(mine));
    EXPECT_NE(mine, vector["kept_idx"]);
  } else {
    EXPECT_EQ(mine, vector["kept_idx"]);
  }
  // Stored as text it decides the same.
  ASSERT_OK_AND_ASSIGN(const Preservation again,
                       ParsePreservation(Text(policy)));
  EXPECT_EQ(Text(again), Text(policy));
  ASSERT_OK_AND_ASSIGN(const std::vector<bool> kept_again,
                       Preserve(again, list.steps()));
  EXPECT_EQ(kept_again, kept) << Text(policy);
  // And what explains it agrees with it.
  ASSERT_OK_AND_ASSIGN(const auto why, Explain(policy, list.steps()));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i], !why[i].empty()) << i;
  }
}

// A.2: what lives after each of several saves.
void Growing(const Json& vector) {
  const Preservation policy = KeepOf(vector["policy"]);
  List list;
  for (std::size_t i = 0; i < vector["save"].size(); ++i) {
    const std::int64_t step = vector["save"][i];
    list.Add(
        step,
        At(vector.contains("times") ? vector["times"][i].get<std::int64_t>()
                                    : step),
        vector.contains("metrics") ? vector["metrics"][i] : Json());
    ASSERT_OK_AND_ASSIGN(const std::vector<bool> kept,
                         Preserve(policy, list.steps()));
    list.Keep(kept);
    EXPECT_EQ(Json(list.Numbers()), vector["live_after"][i]) << i;
  }
}

// A.3: whether to save.
void Decision(const Json& vector) {
  const SaveDecision decision = SaveOf(vector["policy"]);
  SaveQuestion question;
  question.step.step = vector["step"];
  question.step.time = At(vector["time"].get<std::int64_t>());
  question.saving_in_progress = vector.value("busy", false);
  question.preempted = vector.value("preempt", false);
  if (!vector["prev"].empty()) {
    const Json& last = vector["prev"].back();
    question.latest = PolicyStep{.step = last[0].get<std::int64_t>(),
                                 .time = At(last[1].get<std::int64_t>())};
  }
  const absl::StatusOr<bool> save = ShouldSave(decision, question);
  if (vector.contains("error")) {
    EXPECT_FALSE(save.ok());
    EXPECT_FALSE(Check(decision).ok());
    return;
  }
  ASSERT_OK(save);
  EXPECT_EQ(*save, vector["save"].get<bool>());
}

TEST(PreservationVectorsTest, AllOfThem) {
  std::ifstream file(CKPTREE_POLICY_VECTORS);
  ASSERT_TRUE(file) << CKPTREE_POLICY_VECTORS;
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    const Json vector = Json::parse(line);
    const std::string section = vector["section"];
    SCOPED_TRACE(vector["id"].get<std::string>());
    ++counts[section];
    if (section == "A.1") OneShot(vector);
    if (section == "A.2") Growing(vector);
    if (section == "A.3") Decision(vector);
    // A.4, whole managers, is core_manager_test.
  }
  EXPECT_EQ(counts["A.1"], 45);
  EXPECT_EQ(counts["A.2"], 10);
  EXPECT_EQ(counts["A.3"], 12);
  EXPECT_EQ(counts["A.4"], 6);
}

// ---- what the vectors leave out ----

std::vector<PolicyStep> Steps(const std::vector<std::int64_t>& numbers) {
  std::vector<PolicyStep> steps;
  for (const std::int64_t n : numbers) {
    steps.push_back({.step = n, .time = At(n)});
  }
  return steps;
}

std::vector<std::int64_t> Kept(const Preservation& policy,
                               const std::vector<PolicyStep>& steps,
                               const PreservationContext& context = {}) {
  const auto kept = Preserve(policy, steps, context);
  EXPECT_OK(kept);
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if ((*kept)[i]) numbers.push_back(steps[i].step);
  }
  return numbers;
}

TEST(PreservationTest, LatestGoesByPosition) {
  EXPECT_THAT(Kept(LatestN{2}, Steps({5, 1, 3})), ElementsAre(1, 3));
  EXPECT_THAT(Kept(LatestN{0}, Steps({1, 2})), IsEmpty());
}

TEST(PreservationTest, EveryNSteps) {
  EXPECT_THAT(Kept(EveryNSteps{-3}, Steps({0, 1, 2, 3, 6})),
              ElementsAre(0, 3, 6));
  EXPECT_THAT(Kept(EveryNSteps{3, false}, Steps({5, 1, 9, 10})),
              ElementsAre(5, 9));
  // Orbax keeps all of them.
  EXPECT_THAT(Kept(EveryNSteps{2, true, 0}, Steps({0, 1, 2})), IsEmpty());
  EXPECT_THAT(
      Kept(EveryNSteps{3, false}, Steps({0, 1, 2, 4, 5, 8, 9, 13, 14, 25})),
      ElementsAre(0, 4, 8, 13, 25));
}

// What is stored means what it did, and nobody sets it any more.
TEST(PreservationTest, NegativeIntervalsAreNotSet) {
  const Preservation policies[] = {
      EveryNSteps{-5}, EveryNSteps{-5, false}, EveryNStepsClosest{-5},
      LatestN{1} | (Preservation(PreserveAll{}) & EveryNSteps{-5})};
  for (const Preservation& policy : policies) {
    EXPECT_OK(Check(policy));
    EXPECT_THAT(internal::CheckSettable("the policy", policy, true),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("negative interval")));
  }
  EXPECT_OK(internal::CheckSettable("the policy", EveryNSteps{5}, true));
}

TEST(PreservationTest, ClosestGoesHalfToTheEvenMultiple) {
  EXPECT_THAT(Kept(EveryNStepsClosest{2}, Steps({1, 3, 5, 7})),
              ElementsAre(1, 5, 7));
  EXPECT_THAT(Kept(EveryNStepsClosest{10}, Steps({5, 15, 25, 35})),
              ElementsAre(5, 25, 35));
  EXPECT_THAT(Kept(EveryNStepsClosest{10}, Steps({100, 101, 102})),
              ElementsAre(100, 102));
  EXPECT_THAT(Kept(EveryNStepsClosest{3}, Steps({0, 1, 2, 4})),
              ElementsAre(0, 4));
  EXPECT_THAT(Kept(EveryNStepsClosest{10, 0}, Steps({0, 10, 20})), IsEmpty());
}

TEST(PreservationTest, NumbersAtTheEdge) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t interval :
       {kMax, -kMax, kMax / 2 + 2, std::int64_t{-1}, std::int64_t{1}}) {
    EXPECT_THAT(Kept(EveryNStepsClosest{interval}, Steps({0, 7, kMax})),
                ::testing::Contains(kMax));
    EXPECT_OK(Preserve(EveryNSteps{interval, false}, Steps({0, kMax})));
    EXPECT_OK(Preserve(EveryNSteps{interval}, Steps({0, kMax})));
  }
  EXPECT_OK(Preserve(Logarithmic{1}, Steps({0, 1, kMax})));
  EXPECT_OK(Preserve(Logarithmic{kMax}, Steps({0, 1, kMax})));
  // Below zero, as Python rounds: -15 is at -2, -5 at 0.
  EXPECT_THAT(Kept(EveryNStepsClosest{10}, Steps({-21, -15, -5, 1})),
              ElementsAre(-21, 1));
}

TEST(PreservationTest, TimesInAnyOrder) {
  std::vector<PolicyStep> steps = Steps({0, 1, 2, 3, 4});
  const std::int64_t times[] = {100, 0, 5, 109, 110};
  for (int i = 0; i < 5; ++i)
    steps[static_cast<std::size_t>(i)].time = At(times[i]);
  EXPECT_THAT(Kept(EveryNSeconds{absl::Seconds(10)}, steps), ElementsAre(0, 4));
}

TEST(PreservationTest, WithinKeepsAllThatFollows) {
  std::vector<PolicyStep> steps = Steps({0, 1, 2, 3});
  const absl::Time now = At(1'000'000);
  const int hours[] = {30, 1, 30, 30};
  for (int i = 0; i < 4; ++i) {
    steps[static_cast<std::size_t>(i)].time = now - absl::Hours(hours[i]);
  }
  EXPECT_THAT(Kept(LatestDuration{absl::Hours(24)}, steps, {.now = now}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Kept(LatestDuration{absl::Minutes(1)}, steps, {.now = now}),
              IsEmpty());
  // The clock was set back: nothing is younger than now, and nothing goes.
  EXPECT_THAT(Kept(LatestDuration{absl::Hours(24)}, steps,
                   {.now = now - absl::Hours(100)}),
              ElementsAre(0, 1, 2, 3));
}

TEST(PreservationTest, HealthyIsTheNewestOrAFilter) {
  std::vector<PolicyStep> steps = Steps({1, 2, 3, 4, 5});
  steps[3].healthy = steps[4].healthy = false;
  EXPECT_THAT(Kept(Healthy{}, steps), ElementsAre(3));
  EXPECT_THAT(Kept(Healthy{2}, steps), ElementsAre(2, 3));
  EXPECT_THAT(Kept(LatestN{1} | Preservation(Healthy{}), steps),
              ElementsAre(3, 5));
  EXPECT_THAT(Kept(LatestN{3} & Preservation(Healthy{}), steps),
              ElementsAre(3));
  EXPECT_THAT(Kept(LatestN{4} & Preservation(Healthy{1}), steps),
              ElementsAre(3));
}

TEST(PreservationTest, LogarithmicThinsOut) {
  // Saved each 100 steps, judged after each save.
  std::vector<PolicyStep> steps;
  for (std::int64_t step = 0; step <= 1'000'000; step += 100) {
    steps.push_back({.step = step});
    const auto kept = Preserve(Logarithmic{8}, steps);
    ASSERT_OK(kept);
    ASSERT_TRUE(kept->back());
    std::vector<PolicyStep> left;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if ((*kept)[i]) left.push_back(steps[i]);
    }
    steps = std::move(left);
    // 8 to 16 for each of the 14 doublings of 100, and the first octaves.
    ASSERT_LE(steps.size(), 16 * 12u);
  }
  EXPECT_GE(steps.size(), 8 * 8u);
  // Every age is near one that is kept.
  for (std::int64_t age = 1000; age < 900'000; age = age * 5 / 4) {
    std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
    for (const PolicyStep& step : steps) {
      nearest = std::min(nearest, std::abs(1'000'000 - step.step - age));
    }
    EXPECT_LE(nearest, std::max<std::int64_t>(100, age / 4)) << age;
  }
}

TEST(PreservationTest, BudgetAsksForPrices) {
  const std::vector<PolicyStep> steps = Steps({1, 2, 3});
  EXPECT_FALSE(Preserve(Budget{5}, steps).ok());
  PreservationContext context;
  context.oldest_beyond =
      [](std::uint64_t bytes) -> absl::StatusOr<std::size_t> {
    return bytes >= 10 ? 1 : 7;
  };
  EXPECT_THAT(Kept(Budget{10}, steps, context), ElementsAre(2, 3));
  // The newest stays, whatever it costs.
  EXPECT_THAT(Kept(Budget{9}, steps, context), ElementsAre(3));
}

TEST(PreservationTest, MeaninglessCountsAreRefused) {
  for (const Preservation& policy : std::vector<Preservation>{
           LatestN{-1},
           EveryNSteps{0},
           EveryNSteps{1, true, -1},
           EveryNStepsClosest{0},
           EveryNStepsClosest{1, -2},
           LatestDuration{-absl::Seconds(1)},
           EveryNSeconds{absl::InfiniteDuration()},
           BestN{.metric = "m", .mode = static_cast<BestMode>(7)},
           BestN{.metric = "", .mode = BestMode::kMin},
           BestN{.metric = "m"},
           BestN{.metric = "m", .mode = BestMode::kMin, .n = -1},
           Healthy{-1},
           Logarithmic{0},
           Budget{0},
           BestN{
               .metric = "f",
         .mode = BestMode::kMin,
         .function =
                   [](const PolicyStep&) { return std::optional<double>(1); }},
           ckptree::AnyOf{},
           ckptree::AllOf{},
           ckptree::AllOf{{LatestN{1}, ckptree::AnyOf{{LatestN{-1}}}}},
           KeepIf{.name = ""},
           CustomPreservation{.name = std::string(129, 'x')},
           CustomSteps{std::vector<std::int64_t>(10'000, 1'000'000)}}) {
    EXPECT_EQ(Check(policy).code(), absl::StatusCode::kInvalidArgument)
        << Text(policy);
  }
  Preservation deep = LatestN{1};
  for (int i = 0; i < 100; ++i) deep = ckptree::AnyOf{{deep}};
  EXPECT_EQ(Check(deep).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PreservationTest, FunctionsMayThrowOrBeGone) {
  const std::vector<PolicyStep> steps = Steps({1, 2});
  const auto code = [&steps](const Preservation& policy) {
    return Preserve(policy, steps).status();
  };
  EXPECT_THAT(std::string(code(KeepIf{"f",
                                      [](const PolicyStep&) -> bool {
                                        throw std::runtime_error("no idea");
                                      }})
                              .message()),
              HasSubstr("'f' threw: no idea"));
  EXPECT_EQ(
      code(KeepIf{"f", [](const PolicyStep&) -> bool { throw 7; }}).code(),
      absl::StatusCode::kInternal);
  EXPECT_THAT(
      std::string(code(CustomPreservation{"g",
                                          [](std::span<const PolicyStep>) {
                                            return std::vector<bool>(3);
                                          }})
                      .message()),
      HasSubstr("gave 3 answers for 2 steps"));
  for (const Preservation& policy :
       std::vector<Preservation>{KeepIf{"f"}, CustomPreservation{"g"},
                                 BestN{.metric = "h",
                                 .mode = BestMode::kMax,
                                 .n = 1,
                                 .computed = true}}) {
    EXPECT_EQ(code(policy).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(MissingFunction(LatestN{1} | policy), "");
  }
  EXPECT_THAT(Kept(BestN{.metric = "h",
                         .mode = BestMode::kMax,
                         .n = 1,
                         .keep_without_metrics = false,
                         .computed = true,
                         .function =
                             [](const PolicyStep& step) {
                               return step.step == 1 ? std::nan("") : 1.0;
                             }},
                   steps),
              ElementsAre(2));
}

TEST(SaveDecisionTest, FunctionsMayThrow) {
  const SaveQuestion question;
  EXPECT_EQ(
      ShouldSave(SaveIf{[](std::int64_t, std::optional<std::int64_t>) -> bool {
                   throw std::runtime_error("x");
                 }},
                 question)
          .status()
          .code(),
      absl::StatusCode::kInternal);
  EXPECT_EQ(Check(SaveIf{}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(AnySave{{CustomSave{}}}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(const bool never, ShouldSave(AnySave{}, question));
  EXPECT_FALSE(never);
}

}  // namespace
}  // namespace ckptree
