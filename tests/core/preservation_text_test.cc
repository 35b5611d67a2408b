// SPDX-License-Identifier: Apache-2.0

// The text of policies: what is written, what people type, what makes no sense.

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/preservation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;

TEST(PreservationTextTest, SaysWhatItIs) {
  const std::vector<std::pair<Preservation, std::string>> cases = {
      {PreserveAll{}, "all"},
      {LatestN{}, "all"},
      {LatestN{3}, "latest(3)"},
      {EveryNSteps{1000}, "every(1000)"},
      {EveryNSteps{1000, false, 5}, "every(1000, spaced, last=5)"},
      {EveryNStepsClosest{10, 2}, "closest(10, last=2)"},
      {EveryNSeconds{absl::Hours(2)}, "every(2h)"},
      {EveryNSeconds{}, "every(0s)"},
      {LatestDuration{absl::Minutes(90)}, "within(1h30m)"},
      {CustomSteps{{0, 7}}, "steps(0, 7)"},
      {CustomSteps{}, "steps()"},
      {BestN{.metric = "loss", .mode = BestMode::kMin, .n = 2},
       "best(loss, min, 2)"},
      {BestN{.metric = "val/acc",
             .mode = BestMode::kMax,
             .keep_without_metrics = false},
       "best(val/acc, max, all, unmeasured=drop)"},
      {BestN{.metric = "a \"b\"\n", .mode = BestMode::kMax, .n = 1},
       "best(\"a \\\"b\\\"\\n\", max, 1)"},
      {BestN{.metric = "2h", .mode = BestMode::kMax, .n = 1},
       "best(\"2h\", max, 1)"},
      {BestN{
           .metric = "score", .mode = BestMode::kMax, .n = 1, .computed = true},
       "best(score(), max, 1)"},
      {Healthy{}, "healthy(1)"},
      {ckptree::AllOf{{Healthy{}}}, "all & healthy"},
      {Healthy{2}, "healthy(2)"},
      {Logarithmic{8}, "log(8)"},
      {Budget{20'000'000'000}, "budget(20GB)"},
      {Budget{1 << 20}, "budget(1048576B)"},
      {Budget{std::numeric_limits<std::uint64_t>::max()},
       "budget(18446744073709551615B)"},
      {KeepIf{"mine"}, "keep_if(mine)"},
      {CustomPreservation{"mine"}, "custom(mine)"},
      {LatestN{3} | (BestN{.metric = "loss", .mode = BestMode::kMax, .n = 1} &
                     Preservation(Healthy{})),
       "latest(3) | best(loss, max, 1) & healthy"},
      {LatestN{3} & (LatestN{1} | Preservation(Healthy{})),
       "latest(3) & (latest(1) | healthy(1))"},
  };
  for (const auto& [policy, text] : cases) {
    EXPECT_EQ(Text(policy), text);
    ASSERT_OK_AND_ASSIGN(const Preservation again, ParsePreservation(text));
    EXPECT_EQ(Text(again), text);
  }
}

TEST(PreservationTextTest, ReadsWhatPeopleType) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {" latest( 3 )|every(1000) ", "latest(3) | every(1000)"},
      {"((latest(3)))", "latest(3)"},
      {"within(7d)", "within(168h)"},
      {"within(1d12h)", "within(36h)"},
      {"budget(1GiB)", "budget(1073741824B)"},
      {"budget(5000)", "budget(5kB)"},
      {"best(loss, min)", "best(loss, min, 1)"},
      {"best(loss, min, 3, unmeasured=keep)", "best(loss, min, 3)"},
      {"latest(1) | (latest(2) | latest(3))",
       "latest(1) | latest(2) | latest(3)"},
      {"latest(1)\n|\thealthy", "latest(1) | healthy(1)"},
  };
  for (const auto& [typed, text] : cases) {
    ASSERT_OK_AND_ASSIGN(const Preservation policy, ParsePreservation(typed));
    EXPECT_EQ(Text(policy), text) << typed;
  }
}

TEST(PreservationTextTest, SaysWhereItMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "a rule is missing"},
      {"latest(3) |", "a rule is missing"},
      {"latest(3) every(2)", "'|' or '&' is missing before it"},
      {"latest(3", "',' or ')' is missing"},
      {"(latest(3)", "')' is missing"},
      {"latest", "0 arguments, where 1 belong"},
      {"latest(3, 4)", "2 arguments"},
      {"latest(three)", "'three' is no whole number"},
      {"latest(-3)", "0 or more"},
      {"every(0)", "1 or more"},
      {"every(2 weeks)", "',' or ')' is missing"},
      {"every(2w)", "is no time"},
      {"every(2h, spaced)", "is no whole number"},
      {"every(2, widely)", "instead of 'spaced'"},
      {"best(loss)", "1 arguments, where 2"},
      {"best(loss, lowest)", "'min'"},
      {"best(loss, min, 2, missing=drop)", "'missing=' is not known here"},
      {"best(loss, min, 2, unmeasured=no)", "unmeasured=keep"},
      {"budget(much)", "such as 20GB"},
      {"budget(99999999TB)", "such as 20GB"},
      {"geometric(2)", "'geometric' is no rule that this engine knows"},
      {"custom(\"x)", "has no end"},
      {"latest(1) \xff", "at '\\xff'"},
      {std::string(100, '('), "nested too deeply"},
  };
  for (const auto& [text, why] : cases) {
    const absl::StatusOr<Preservation> policy = ParsePreservation(text);
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace ckptree
