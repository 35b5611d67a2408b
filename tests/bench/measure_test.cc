// SPDX-License-Identifier: Apache-2.0

#include "bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ckptree::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Figure kSaved = {.name = "full_save",
                       .what = "all \"changed\"",
                       .unit = "GB/s",
                       .values = {2, 3, 1},
                       .beside = "raw write",
                       .beside_values = {4, 4, 4},
                       .floor = 0.8,
                       .goal = 0.9};

// What Report() says of `figure`, and returns.
std::string Said(const Figure& figure, bool* passed = nullptr,
                 bool guard = true) {
  Settings settings;
  settings.guard = guard;
  testing::internal::CaptureStdout();
  const bool good = Report(settings, figure);
  if (passed != nullptr) *passed = good;
  return testing::internal::GetCapturedStdout();
}

TEST(MeasureTest, JudgesTheRatioOfEachTurn) {
  EXPECT_THAT(Judged(kSaved), ElementsAre(0.5, 0.75, 0.25));
}

TEST(MeasureTest, JudgesTheRatioOfMediansWhereOneWasMeasuredMoreOften) {
  Figure figure = kSaved;
  figure.beside_values = {1, 4, 9, 4};
  EXPECT_THAT(Judged(figure), ElementsAre(0.5));
}

TEST(MeasureTest, JudgesTheValuesWhereNothingIsBeside) {
  Figure figure = kSaved;
  figure.beside_values.clear();
  EXPECT_THAT(Judged(figure), ElementsAre(2, 3, 1));
}

TEST(MeasureTest, AGuardForgivesTheSlackAndNoMore) {
  bool passed = true;
  EXPECT_THAT(Said(kSaved, &passed), HasSubstr("floor >= 0.8: MISSED"));
  EXPECT_FALSE(passed);
  Said(kSaved, &passed, /*guard=*/false);
  EXPECT_TRUE(passed);
  Figure figure = kSaved;
  figure.floor = 0.7;  // 0.5 is above 0.7 / 1.5.
  EXPECT_THAT(Said(figure, &passed), HasSubstr("missed, within the slack"));
  EXPECT_TRUE(passed);
  figure.floor = 0.5;
  EXPECT_THAT(Said(figure, &passed), HasSubstr("floor >= 0.5: met; goal >= "
                                               "0.9: not yet"));
}

TEST(MeasureTest, AMostIsMetFromBelow) {
  Figure figure = kSaved;
  figure.at_least = false;
  figure.goal = 0.5;
  bool passed = false;
  EXPECT_THAT(Said(figure, &passed),
              HasSubstr("floor <= 0.8: met; goal <= 0.5: met"));
  EXPECT_TRUE(passed);
}

TEST(MeasureTest, TheOldCallsAreFigures) {
  Settings settings;
  settings.guard = true;
  testing::internal::CaptureStdout();
  EXPECT_TRUE(Judge(settings, "case", "what, ms", {5}, 2, /*at_least=*/false,
                    /*absolute=*/true));
  EXPECT_FALSE(Judge(settings, "case", "what", {5}, 2, /*at_least=*/false));
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("MISSED"));
}

// The last of them: from here on there is no text.
TEST(MeasureTest, WritesOneObjectALine) {
  WriteFiguresAsJson();
  EXPECT_EQ(Said(kSaved),
            "{\"case\": \"full_save\", \"what\": \"all \\\"changed\\\"\", "
            "\"unit\": \"GB/s\", \"values\": [2, 3, 1], \"beside\": "
            "\"raw write\", \"beside_values\": [4, 4, 4], \"floor\": 0.8, "
            "\"goal\": 0.9, \"at_least\": true}\n");
}

}  // namespace
}  // namespace ckptree::bench
