// SPDX-License-Identifier: Apache-2.0

// `ckptree report`: what the page says, read back and held against the store.

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"
#include "tests/tools/report_page.h"
#include "tools/report/choose_steps.h"
#include "tools/report/number_pack.h"
#include "tools/report/page.h"
#include "tools/report/report_data.h"

namespace ckptree {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReportTest : public CommandRunner {
 protected:
  void SetUp() override {
    if (tools::EmbeddedPage() == nullptr) {
      GTEST_SKIP() << "built without Chart.js (libjs-chart.js)";
    }
    ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  }

  Result Report(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", store_, "report"});
    return Run(std::move(words));
  }
  ReadPage PageOf(std::vector<std::string> words) {
    const Result result = Report(std::move(words));
    EXPECT_EQ(result.code, 0) << result.err;
    return Read(result.out);
  }

  const std::string store_ = scratch_ / "store";
};

TEST_F(ReportTest, SaysOfEachStepWhatTheStoreSays) {
  const ReadPage page = PageOf({});
  EXPECT_EQ(page.kind, "file");
  EXPECT_EQ(page.json["schema"], "ckptree.report/1");
  EXPECT_EQ(page.json["store"]["name"], "store");
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(store_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  ASSERT_OK_AND_ASSIGN(const UsageReport usage, store.Usage());
  const auto column = [&](const char* name) {
    return Integers(page, page.json["steps"][name]);
  };
  ASSERT_THAT(column("step"), ElementsAre(100, 200, 300, 400, 500));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto is = [&](const char* name, std::uint64_t value) {
      EXPECT_EQ(column(name)[i], static_cast<std::int64_t>(value)) << name;
    };
    is("new", steps[i].new_bytes);
    is("all", steps[i].logical_bytes);
    is("alone", usage.steps[i].unique_stored_bytes);
    is("leaves", steps[i].leaf_count);
    is("changed", steps[i].changed_leaves);
    is("nan", steps[i].nan_count);
    is("inf", steps[i].inf_count);
    is("bad", steps[i].nonfinite_leaves);
    is("time",
       static_cast<std::uint64_t>(absl::ToUnixMillis(steps[i].committed)));
  }
  std::map<std::size_t, nlohmann::json> told;
  for (const auto& one : page.json["steps"]["told"]) told[one["at"]] = one;
  EXPECT_THAT(told, SizeIs(3));
  EXPECT_EQ(told[0]["pinned"], true);
  EXPECT_THAT(told[1]["tags"], ElementsAre("warm"));
}

TEST_F(ReportTest, BranchesBeginWhereTheyGoOn) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
    ASSERT_OK(store.Fork(300, "trial"));
    ASSERT_OK(store.Fork(200, "empty"));
    for (const std::int64_t step : {310, 700}) {
      StepBuilder builder = store.Begin(step, {.branch = "trial"});
      builder.PutInt("n", step);
      builder.SetMetric("acc", static_cast<double>(step) / 1000);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    // Of a branch, and so not of this page.
    ASSERT_OK(store.Fork(AtStep(310, "trial"), "second"));
    ASSERT_OK(store.Close());
  }
  const ReadPage page = PageOf({});
  std::map<std::string, nlohmann::json> branches;
  for (const auto& one : page.json["branches"]) branches[one["name"]] = one;
  ASSERT_THAT(branches, SizeIs(2));
  EXPECT_EQ(branches["empty"]["at"], 1);
  EXPECT_EQ(branches["empty"]["steps"], 0);
  EXPECT_TRUE(branches["empty"]["newest"].is_null());
  EXPECT_EQ(branches["trial"]["at"], 2);
  EXPECT_EQ(branches["trial"]["from"], 300);
  EXPECT_EQ(branches["trial"]["newest"], 700);
  ASSERT_THAT(branches["trial"]["metrics"], SizeIs(1));
  const auto& metric = branches["trial"]["metrics"][0];
  EXPECT_EQ(metric["name"], "acc");
  EXPECT_THAT(Integers(page, metric["step"]), ElementsAre(310, 700));
  EXPECT_THAT(Floats(page, metric["value"]), ElementsAre(0.31f, 0.7f));
  const ReadPage trial = PageOf({"-b", "trial"});
  ASSERT_THAT(trial.json["branches"], SizeIs(1));
  EXPECT_EQ(trial.json["branches"][0]["name"], "second");
}

TEST_F(ReportTest, MetricsStandAtTheirSteps) {
  const ReadPage page = PageOf({});
  ASSERT_THAT(page.json["metrics"], SizeIs(2));
  for (const auto& metric : page.json["metrics"]) {
    const std::vector<std::int64_t> at = Integers(page, metric["at"]);
    const std::vector<float> values = Floats(page, metric["value"]);
    if (metric["name"] == "acc") {
      EXPECT_THAT(at, ElementsAre(0, 2, 3, 4));  // Step 200 has none.
      EXPECT_THAT(values, ElementsAre(0.1f, 0.3f, 0.4f, 0.5f));
    } else {
      EXPECT_EQ(metric["name"], "loss");
      EXPECT_THAT(at, ElementsAre(0, 1, 2, 3, 4));
      EXPECT_EQ(values[3], 0.25f);
    }
  }
}

TEST_F(ReportTest, SaysOfEachLeafInEachStepWhatItsRecordSays) {
  const ReadPage page = PageOf({});
  const auto& grid = page.json["grid"];
  const std::vector<std::int64_t> value = Integers(page, grid["value"]);
  const std::vector<std::int64_t> type = Integers(page, grid["type"]);
  const std::vector<std::int64_t> nan = Integers(page, grid["nan"]);
  std::map<std::string, std::vector<float>> floats;
  for (const char* name : {"l2", "mean", "std", "min", "max"}) {
    floats[name] = Floats(page, grid[name]);
  }
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(store_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  const std::size_t columns = steps.size();
  ASSERT_THAT(Integers(page, grid["at"]), ElementsAre(0, 1, 2, 3, 4));
  std::size_t compared = 0;
  for (std::size_t leaf = 0; leaf < grid["names"].size(); ++leaf) {
    std::map<std::int64_t, std::string> digests;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = leaf * columns + c;
      ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(steps[c].step));
      ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> leaves, step.Leaves());
      for (const LeafInfo& info : leaves) {
        if (info.name != grid["names"][leaf] || !info.is_leaf()) continue;
        ASSERT_OK_AND_ASSIGN(const LeafDetail detail, step.Detail(info.path));
        // Equal numbers are equal values, and only these.
        const auto [it, fresh] = digests.emplace(value[at], detail.digest);
        EXPECT_EQ(it->second, detail.digest);
        for (const auto& [number, digest] : digests) {
          EXPECT_EQ(number == value[at], digest == detail.digest);
        }
        const std::string text =
            grid["types"][static_cast<std::size_t>(type[at])]["text"];
        EXPECT_THAT(text,
                    HasSubstr(info.dtype == DType::kNone ? Name(info.kind)
                                                         : Name(info.dtype)));
        ++compared;
        if (!detail.statistics || detail.statistics->finite() == 0) {
          EXPECT_TRUE(std::isnan(floats["l2"][at]));
          continue;
        }
        const Statistics& known = *detail.statistics;
        EXPECT_EQ(nan[at], static_cast<std::int64_t>(known.nan));
        const auto near = [&](const char* name, double truth) {
          EXPECT_NEAR(floats[name][at], truth, std::abs(truth) / 65536) << name;
        };
        near("l2", known.l2());
        near("mean", known.mean());
        near("std", known.std_dev());
        near("min", known.min);
        near("max", known.max);
      }
    }
  }
  EXPECT_EQ(compared, grid["names"].size() * columns);
  EXPECT_GE(compared, 50u);
}

TEST_F(ReportTest, LooksAtTheStepsThatMatterWhereTheyAreMany) {
  const ReadPage page = PageOf({"--leaf-steps", "3"});
  // The first, the last, and one of those with a tag, a pin or a NaN.
  const std::vector<std::int64_t> at = Integers(page, page.json["grid"]["at"]);
  EXPECT_THAT(at, Contains(0));
  EXPECT_THAT(at, Contains(4));
  EXPECT_EQ(Integers(page, page.json["steps"]["step"]).size(), 5u);
}

TEST_F(ReportTest, CountsHistogramsAsTheValuesAre) {
  const ReadPage page = PageOf({"--hist", "params/w"});
  ASSERT_THAT(page.json["histograms"], SizeIs(1));
  const auto& histogram = page.json["histograms"][0];
  EXPECT_EQ(histogram["low"], 100.0);
  EXPECT_EQ(histogram["high"], 64 * 48 - 1 + 500.0);
  const std::size_t bins = histogram["bins"];
  const double wide = (64 * 48 - 1 + 400.0) / static_cast<double>(bins);
  const std::vector<std::int64_t> counts = Integers(page, histogram["counts"]);
  ASSERT_EQ(counts.size(), 5 * bins);
  std::vector<std::int64_t> expected(5 * bins);
  for (std::size_t step = 0; step < 5; ++step) {
    for (int i = 0; i < 64 * 48; ++i) {
      if (step == 2 && i == 7) continue;  // The NaN.
      const double value = i + 100.0 * static_cast<double>(step);
      const auto bin = static_cast<std::size_t>(value / wide);
      ++expected[step * bins + std::min(bin, bins - 1)];
    }
  }
  EXPECT_EQ(counts, expected);
}

TEST_F(ReportTest, NothingOfAStoreIsHtml) {
  const std::string hostile = scratch_ / "hostile";
  const std::string evil = "</script><script>alert(1)</script><img src=x>";
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(hostile, {.create_if_missing = true}));
    StepBuilder step = store.Begin(1);
    step.PutFloat("\"" + evil + "\"", 1);
    step.PutString("\"a\\u0000\\u001b[2J\\u202e<!--\"", evil);
    step.SetMetric("<b>loss", 1).SetNote(evil);
    ASSERT_OK(std::move(step).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Tag("\"><svg/onload=alert(2)>", 1));
    ASSERT_OK(store.Close());
  }
  const Result result = Run({"-C", hostile, "report"});
  ASSERT_EQ(result.code, 0) << result.err;
  const ReadPage page = Read(result.out);
  // It is in the data, and all around that is as it is of another store.
  EXPECT_EQ(page.json["steps"]["told"][0]["note"], evil);
  EXPECT_EQ(page.json["steps"]["told"][0]["tags"][0],
            "\"><svg/onload=alert(2)>");
  EXPECT_TRUE(page.around == PageOf({}).around);
}

TEST_F(ReportTest, ThePageFetchesNothingAndRunsOnlyWhatItNames) {
  const ReadPage page = PageOf({});
  EXPECT_TRUE(Holds(page.around, "default-src 'none'"));
  EXPECT_TRUE(Holds(page.around, "connect-src 'none'"));
  EXPECT_FALSE(Holds(page.around, "unsafe-inline"));
  EXPECT_FALSE(Holds(page.around, " src=\""));
  // The licence goes along with the library.
  EXPECT_TRUE(Holds(page.around, "Permission is hereby granted"));
}

TEST_F(ReportTest, GoesIntoAFileThatIsWholeOrNotThere) {
  const std::string file = scratch_ / "run.html";
  Result result = Report({"-o", file});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("5 steps"));
  EXPECT_TRUE(Read(ReadFile(file)).around == PageOf({}).around);
  result = Report({"-o", scratch_ / "no/such/folder.html"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("folder.html"));
}

TEST_F(ReportTest, WhatCannotBeIsSaidByName) {
  const auto fails = [&](std::vector<std::string> words, int code,
                         const std::string& says) {
    const Result result = Report(words);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_TRUE(result.out.empty());
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  fails({"7000.."}, 3, "no steps");
  fails({"-b", "nobody"}, 3, "nobody");
  fails({"--hist", "nobody"}, 3, "nobody");
  fails({"--hist", "params//w"}, 2, "an empty part");
  fails({"-k", "params//w"}, 2, "an empty part");
  fails({"--leaf-steps", "1"}, 2, "--leaf-steps 1");
  fails({"--leaf-steps", "x"}, 2, "--leaf-steps");
}

TEST_F(ReportTest, KeysAndRangesChoose) {
  const ReadPage page = PageOf({"200..400", "-k", "params/*"});
  EXPECT_THAT(Integers(page, page.json["steps"]["step"]),
              ElementsAre(200, 300, 400));
  EXPECT_THAT(page.json["grid"]["names"], SizeIs(4));
}

TEST(ReportWithoutChartsTest, IsRefusedByName) {
  if (tools::EmbeddedPage() != nullptr) {
    EXPECT_OK(tools::CheckHasPage());
    return;
  }
  EXPECT_THAT(std::string(tools::CheckHasPage().message()),
              HasSubstr("Chart.js"));
}

std::vector<StepInfo> ManySteps(std::size_t count) {
  std::vector<StepInfo> steps(count);
  for (std::size_t i = 0; i < count; ++i) {
    steps[i].step = static_cast<std::int64_t>(i);
  }
  return steps;
}

TEST(ChooseStepsTest, TakesAllWhereTheyAreFew) {
  EXPECT_THAT(tools::ChooseSteps(ManySteps(3), 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(tools::ChooseSteps({}, 3), IsEmpty());
}

TEST(ChooseStepsTest, TakesMarkedOnesAndTheOthersEvenly) {
  std::vector<StepInfo> steps = ManySteps(1000);
  steps[77].nan_count = 1;
  steps[501].tags = {"a"};
  steps[502].pinned = true;
  steps[998].inf_count = 1;
  const std::vector<std::size_t> chosen = tools::ChooseSteps(steps, 20);
  EXPECT_LE(chosen.size(), 20u);
  EXPECT_GE(chosen.size(), 16u);
  for (const std::size_t must : {0u, 77u, 501u, 502u, 998u, 999u}) {
    EXPECT_THAT(chosen, Contains(must));
  }
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    EXPECT_LT(chosen[i - 1], chosen[i]);
    EXPECT_LT(chosen[i] - chosen[i - 1], 80u);
  }
}

TEST(ChooseStepsTest, StaysBelowTheBoundWhereAllAreMarked) {
  std::vector<StepInfo> steps = ManySteps(1000);
  for (StepInfo& step : steps) step.nan_count = 1;
  const std::vector<std::size_t> chosen = tools::ChooseSteps(steps, 20);
  EXPECT_LE(chosen.size(), 20u);
  EXPECT_EQ(chosen.front(), 0u);
  EXPECT_EQ(chosen.back(), 999u);
}

TEST(NumberPackTest, KeepsIntegersAndTheDigitsOfFloats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::int64_t> integers = {
      0,
      -1,
      127,
      128,
      std::numeric_limits<std::int64_t>::max(),
      std::numeric_limits<std::int64_t>::min(),
      5};
  const std::vector<double> floats = {
      0,     -0.0,  1,         -1,         0.1,          1e30,
      1e-30, -3.25, kInfinity, -kInfinity, std::nan(""), 3.4028234e38};
  tools::NumberPack pack;
  const auto first = pack.AddIntegers(integers);
  const auto second = pack.AddFloats(floats, tools::Digits::kFloat);
  const auto third = pack.AddFloats(floats, tools::Digits::kDrawn);
  const ReadPage page = {.numbers = pack.bytes()};
  EXPECT_EQ(Integers(page, first), integers);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const float whole = Floats(page, second)[i];
    const float drawn = Floats(page, third)[i];
    if (!std::isfinite(floats[i])) {
      EXPECT_EQ(std::isnan(whole), std::isnan(floats[i]));
      EXPECT_EQ(std::isnan(drawn), std::isnan(floats[i]));
      if (!std::isnan(floats[i])) EXPECT_EQ(drawn, floats[i]);
      continue;
    }
    EXPECT_EQ(whole, static_cast<float>(floats[i]));
    EXPECT_TRUE(std::isfinite(drawn));
    EXPECT_NEAR(drawn, floats[i], std::abs(floats[i]) / 32768);
  }
}

}  // namespace
}  // namespace ckptree
