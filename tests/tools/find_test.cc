// SPDX-License-Identifier: Apache-2.0

// `find`, and conditions of every table, on the demo store.

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class FindTest : public CommandRunner {
 protected:
  static void SetUpTestSuite() { folder_ = new testing::TempDir; }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override {
    if (made_) return;
    const Result made = Run({"demo", store()});
    ASSERT_EQ(made.code, 0) << made.err;
    made_ = true;
  }
  void TearDown() override {
    if (folder_ == nullptr) made_ = false;
  }
  static std::string store() { return *folder_ / "store"; }
  Result Ask(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", store()});
    return Run(std::move(words));
  }
  // "KEY FIRST LAST STEPS", a row each, after `words` of `find`.
  std::string Found(std::vector<std::string> words) {
    words.insert(words.begin(), "find");
    words.insert(words.end(), {"-o", "csv", "--no-header", "--columns",
                               "key,first,last,steps"});
    const Result result = Ask(std::move(words));
    EXPECT_EQ(result.code, result.out.empty() ? 1 : 0) << result.err;
    return result.out;
  }

 private:
  static inline testing::TempDir* folder_ = nullptr;
  static inline bool made_ = false;
};

// The range says which steps are asked, not which one is before them.
TEST_F(FindTest, TheFirstStepOfARangeHasOneBeforeIt) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"-k", "*"}, {"-k", "**"}}) {
    const auto found = [&](const std::string& condition,
                           const std::string& range) {
      std::vector<std::string> words = {condition, range};
      words.insert(words.end(), more.begin(), more.end());
      return Found(words);
    };
    EXPECT_EQ(found("nan>prev.nan", "1300.."), found("nan>prev.nan", ".."));
    EXPECT_EQ(found("nan>prev.nan", "1300"), found("nan>prev.nan", "..1300"));
  }
  EXPECT_THAT(Found({"nan>prev.nan", "1300"}), HasSubstr("1300"));
  EXPECT_EQ(Found({"step>prev.step", "1300", "--columns", "first"}),
            Found({"step==1300", "--columns", "first"}));
}

// Here, as the demo has a branch.
TEST_F(FindTest, TheFirstStepOfABranchDiffersFromWhereItBegan) {
  const std::string first = "small-lr/1300";
  const Json step = Json::parse(Ask({"show", first, "--json"}).out);
  const Json log = Json::parse(Ask({"log", "--json"}).out);
  std::string before;
  for (const Json& row : log["steps"]) {
    if (row["version"] == step["base"]) before = row["step"].dump();
  }
  ASSERT_NE(before, "") << step;
  EXPECT_EQ(Ask({"diff", first, "--json"}).out,
            Ask({"diff", before, first, "--json"}).out);
  EXPECT_EQ(Ask({"diff", first}).code, 1);
  // There is none before the first of all.
  EXPECT_EQ(Ask({"diff", "100"}).code, 3);
}

TEST_F(FindTest, LeavesByTheirStatistics) {
  EXPECT_EQ(Found({"nan>0"}),
            "params/block_1/attn/kernel,1300,1300,1\n"
            "params/out/kernel,1300,1300,1\n");
  EXPECT_EQ(Found({"inf>0", "1000..1300"}), "params/out/bias,1300,1300,1\n");
  EXPECT_EQ(Found({"nan>0", "..1200"}), "");
  EXPECT_EQ(Found({"shape[0]==1024 and dtype==float32 and not key~'**/bias'"}),
            "params/embed/table,100,2000,20\nparams/head/kernel,100,2000,20\n");
  EXPECT_EQ(Found({"zeros==count"}), "");
}

TEST_F(FindTest, TheSameLeafOneStepEarlier) {
  // The first step has none before it.
  EXPECT_EQ(Found({"l2==prev.l2", "-k", "params/**"}),
            "params/embed/table,200,2000,19\nparams/head/kernel,200,2000,19\n");
  EXPECT_EQ(Found({"nan<prev.nan", "-k", "params/*/kernel"}),
            "params/out/kernel,1400,1400,1\n");
}

TEST_F(FindTest, SeveralGlobsAreOne) {
  EXPECT_EQ(Found({"nan+inf>0", "-k", "params/out/*", "-k", "nothing/**"}),
            "params/out/bias,1300,1300,1\nparams/out/kernel,1300,1300,1\n");
}

TEST_F(FindTest, StepsAlone) {
  EXPECT_EQ(Found({"loss==nan"}), ",1300,1300,1\n");
  EXPECT_EQ(Found({"tags==warmup or pinned"}), ",100,300,2\n");
  EXPECT_EQ(Found({"loss<2.2", "--branch", "small-lr"}), ",1300,1600,4\n");
}

TEST_F(FindTest, Json) {
  const Result result = Ask({"find", "inf>0", "--json"});
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["schema"], "ckptree.find/1");
  EXPECT_EQ(json["condition"], "inf>0");
  EXPECT_EQ(json["steps_searched"], 20);
  EXPECT_EQ(json["found"][0]["key"], "params/out/bias");
  EXPECT_EQ(json["found"][0]["inf"], 1);
  EXPECT_EQ(Json::parse(Ask({"find", "l2>1e9", "--json"}).out)["found"],
            Json::array());
}

TEST_F(FindTest, AWrongConditionIsTwoAndNamesThePlace) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"find", "nan>"},
           {"find", "nann>0"},
           {"find", "nan>'a'"},
           {"find", "prev.lozz>1"},
           {"find", "nan>0", "-k", "re:("},
           {"log", "--where", "loss<2 | step>3"},
           {"log", "--where", "loss<'2'"},
           {"ls", "--where", "kez~'a'"}}) {
    const Result result = Ask(words);
    EXPECT_EQ(result.code, 2) << words[1] << result.err;
    EXPECT_EQ(result.out, "");
    if (words[0] != "find" || words.size() == 2) {
      EXPECT_THAT(result.err, HasSubstr("^\n")) << result.err;
    }
  }
  EXPECT_EQ(Ask({"find"}).code, 2);
  EXPECT_EQ(Ask({"find", "nan>0", "77"}).code, 3);
}

TEST_F(FindTest, ConditionsOfTables) {
  const auto steps = [&](std::vector<std::string> where) {
    where.insert(where.begin(),
                 {"log", "-o", "csv", "--no-header", "--columns", "step"});
    const Result result = Ask(std::move(where));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(steps({"--where", "loss!=loss"}), "");
  EXPECT_EQ(steps({"--where", "step<200 or step>1900"}), "2000\n100\n");
  EXPECT_EQ(steps({"--where", "step<200 || tags~'re*'"}), "1900\n100\n");
  // Of several all must hold.
  EXPECT_EQ(steps({"--where", "step<300", "--where", "step>100"}), "200\n");
}

TEST_F(FindTest, DiffTellsWhatIsNotFinite) {
  const Result result = Ask({"diff", "1200..1300"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("NAN AFTER"));
  EXPECT_THAT(result.out, HasSubstr("of the finite elements"));
  const Json json = Json::parse(Ask({"diff", "1200..1300", "--json"}).out);
  std::uint64_t nan = 0, inf = 0;
  for (const Json& change : json["changes"]) {
    if (change["nan_after"].is_null()) continue;
    EXPECT_EQ(change["nan_before"], 0);
    nan += change["nan_after"].get<std::uint64_t>();
    inf += change["inf_after"].get<std::uint64_t>();
  }
  EXPECT_EQ(nan, 4u);
  EXPECT_EQ(inf, 1u);
  EXPECT_THAT(Ask({"diff", "100..200"}).out, Not(HasSubstr("NAN")));
}

TEST_F(FindTest, ColumnsAreKnownByTheirTitlesToo) {
  EXPECT_EQ(Ask({"ls", "--sort", "-size", "-n", "3"}).out,
            Ask({"ls", "--sort", "-bytes", "-n", "3"}).out);
  EXPECT_EQ(Ask({"log", "--columns", "new,step", "-n", "2"}).code, 0);
  EXPECT_THAT(Ask({"log", "--columns", "new", "-n", "1"}).out,
              HasSubstr("KiB"));
  EXPECT_EQ(Ask({"log", "--columns", "fresh"}).code, 2);
}

TEST_F(FindTest, LogDrawsBranches) {
  const Result graph = Ask({"log", "--graph", "--columns", "graph,step,tags"});
  EXPECT_EQ(graph.code, 0) << graph.err;
  EXPECT_THAT(graph.out, HasSubstr("  *    small-lr/1300\n* |    2000\n"));
  EXPECT_THAT(graph.out, HasSubstr("* |    1300\n| /\n*      1200\n"));
  EXPECT_THAT(graph.out, HasSubstr("*      300            @warmup\n"));
  EXPECT_THAT(Ask({"log", "--graph"}).out, HasSubstr("GRAPH  STEP"));
  const Json json = Json::parse(Ask({"log", "--graph", "--json"}).out);
  EXPECT_EQ(json["steps"].size(), 24u);
  EXPECT_EQ(json["steps"][0]["branch"], "small-lr");
  EXPECT_EQ(Ask({"log", "--graph", "--where", "step>1900", "--columns", "step",
                 "-o", "csv", "--no-header"})
                .out,
            "2000\n");
  for (const char* other : {"--reverse", "--sort=loss", "100..200"}) {
    EXPECT_EQ(Ask({"log", "--graph", other}).code, 2) << other;
  }
}

TEST_F(FindTest, LinesOfMetricsAndValues) {
  setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_THAT(Ask({"log", "--spark"}).out,
              HasSubstr("\nloss      █▇▆▅▄▃▃▃▂▂▂▂x▁▁▁▁▁▁▁\n"));
  setenv("LC_ALL", "C", 1);
  EXPECT_THAT(Ask({"log", "--spark"}).out,
              HasSubstr("\nloss      #*+=:---....x_______"));
  EXPECT_THAT(Ask({"history", "params/out/bias", "1000..", "--spark"}).out,
              ::testing::ContainsRegex("\nL2  [_.:=+*#-]{11}\n$"));
  EXPECT_THAT(Ask({"history", "opt/[0]/.count", "1800..", "--spark"}).out,
              HasSubstr("\nVALUE  _=#\n"));
}

TEST_F(FindTest, FollowEndsAtAStep) {
  const Result follow =
      Ask({"log", "-f", "-n", "2", "--until", "2000", "-o", "ndjson"});
  EXPECT_EQ(follow.code, 0) << follow.err;
  const std::size_t line = follow.out.find('\n');
  EXPECT_EQ(Json::parse(follow.out.substr(0, line))["step"], 1900);
  EXPECT_EQ(Json::parse(follow.out.substr(line))["step"], 2000);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"log", "--alert", "nan>0"},
           {"log", "-f", "--alert", "nan>"},
           {"log", "-f", "--alert", "nann>0"},
           {"log", "-f", "--exec", "true"},
           {"log", "-f", "--alert", "nan>0", "--exec", "'true"},
           {"log", "-f", "--stall", "soon"},
           {"log", "-f", "--stall", "-3s"},
           {"log", "-f", "100.."},
           {"log", "-f", "-o", "md"}}) {
    EXPECT_EQ(Ask(words).code, 2) << words.back();
  }
}

TEST_F(FindTest, AMetricThatReadsAsAQuotientIsWrittenBetweenBackquotes) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  ASSERT_OK(store.Begin(1)
                .PutInt("n", 1)
                .SetMetric("val/loss", 2)
                .Commit()
                .WaitCommitted(absl::Minutes(1)));
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"log", "-f", "--alert", "val/loss>1"},
           {"log", "--where", "val/loss>1"}}) {
    std::vector<std::string> all = {"-C", own};
    all.insert(all.end(), words.begin(), words.end());
    const Result refused = Run(all);
    EXPECT_EQ(refused.code, 2) << words[1];
    EXPECT_THAT(refused.err, HasSubstr("`val/loss` is one name")) << words[1];
  }
  EXPECT_THAT(Run({"-C", own, "log", "--where", "`val/loss`>1", "-o", "csv",
                   "--columns", "step"})
                  .out,
              HasSubstr("1"));
}

TEST_F(FindTest, FollowTellsOfStepsAsTheyCome) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  const auto save = [&](std::int64_t step, double loss) {
    ASSERT_OK(store.Begin(step)
                  .PutInt("\"a;touch $(x)\"", step)
                  .SetMetric("loss", loss)
                  .Commit()
                  .WaitCommitted(absl::Minutes(1)));
  };
  save(1, 0.5);
  const std::string alerts = scratch_ / "alerts";
  // The first alert saves the step that ends it: nothing here takes time.
  std::thread trainer([&] {
    const auto wait_for = [&](const std::string& path) {
      while (!std::filesystem::exists(path)) std::this_thread::yield();
    };
    wait_for(scratch_ / "begun");
    save(2, 20);
    save(3, 0.25);
  });
  const Result follow =
      Run({"-C", own, "log", "-f", "--alert", "loss>10", "--stall", "1ns",
           "--until", "3", "-o", "ndjson", "--exec",
           "sh -c 'echo \"$CKPTREE_ALERT|$CKPTREE_REV|$CKPTREE_STORE\" >> " +
               alerts + "; touch " + (scratch_ / "begun") + "'"});
  trainer.join();
  EXPECT_EQ(follow.code, 0) << follow.err;
  EXPECT_THAT(follow.err, HasSubstr("alert: step 2: loss>10"));
  EXPECT_THAT(follow.err, HasSubstr("alert: no step for 1ns"));
  EXPECT_THAT(ReadFile(alerts), HasSubstr("stall||" + own + "\n"));
  EXPECT_THAT(ReadFile(alerts), HasSubstr("loss>10|2|" + own + "\n"));
  EXPECT_EQ(std::count(follow.out.begin(), follow.out.end(), '\n'), 3);
  ASSERT_OK(store.Close());
}

TEST_F(FindTest, WhatAnAlertRunsPrintsBesideTheRows) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  const auto save = [&](std::int64_t step) {
    ASSERT_OK(store.Begin(step).PutInt("n", step).Commit().WaitCommitted(
        absl::Minutes(1)));
  };
  save(1);
  std::thread trainer([&] {
    while (!std::filesystem::exists(scratch_ / "begun")) {
      std::this_thread::yield();
    }
    save(2);
  });
  const Result follow = Run(
      {"-C", own, "log", "-f", "--stall", "1ns", "--until", "2", "--json",
       "--exec", "sh -c 'echo a word; touch " + (scratch_ / "begun") + "'"});
  trainer.join();
  EXPECT_EQ(follow.code, 0) << follow.err;
  EXPECT_THAT(follow.err, HasSubstr("a word\n"));
  EXPECT_THAT(follow.out, Not(HasSubstr("a word")));
  EXPECT_EQ(std::count(follow.out.begin(), follow.out.end(), '\n'), 2);
  ASSERT_OK(store.Close());
}

TEST_F(FindTest, RangesAreTakenOrNamed) {
  const auto steps = [this](std::vector<std::string> words) {
    words.insert(words.end(),
                 {"-o", "tsv", "--no-header", "--columns", "step"});
    return Ask(std::move(words)).out;
  };
  EXPECT_EQ(steps({"log", "-2"}), "2000\n1900\n");
  EXPECT_EQ(steps({"log", "-n", "2"}), "2000\n1900\n");
  const Result backwards = Ask({"log", "2000..1000"});
  EXPECT_EQ(backwards.code, 2);
  EXPECT_THAT(backwards.err, HasSubstr("goes backwards"));
  EXPECT_THAT(backwards.err, HasSubstr("1000..2000"));
  const Result empty = Ask({"log", "5000..6000"});
  EXPECT_EQ(empty.code, 0);
  EXPECT_THAT(empty.err,
              HasSubstr("no step is in 5000..6000; there are 100 to 2000"));
  EXPECT_THAT(Ask({"log", "100...300"}).err, HasSubstr("one dot too many"));
  EXPECT_THAT(Ask({"ls", "100..300"}).err, HasSubstr("is a range of steps"));
  const Result diff = Ask({"diff", "1900..2000", "params"});
  EXPECT_EQ(diff.code, 2);
  EXPECT_THAT(diff.err, HasSubstr("diff, of one word: `diff 100..200`"));
  EXPECT_THAT(Ask({"show", "warmup"}).err, HasSubstr("@warmup"));
  EXPECT_EQ(Ask({"diff", "1200..1300", "--json"}).out,
            Ask({"diff", "1200", "1300", "--json"}).out);
  EXPECT_EQ(Ask({"diff", "1900..", "--json"}).out,
            Ask({"diff", "1900", "latest", "--json"}).out);
  EXPECT_THAT(Ask({"verify", "100..300"}).out, HasSubstr("3 steps, "));
  // No step is not every step.
  EXPECT_THAT(Ask({"verify", "1..9"}).out, HasSubstr("0 steps, "));
  EXPECT_EQ(Run({"-C", "/nowhere", "--help"}).code, 0);
}

TEST_F(FindTest, OfTheStepBefore) {
  EXPECT_EQ(Found({"step>prev.step+100 or accuracy<prev.accuracy"}),
            ",1300,1300,1\n");
  // 0 in step 1300, and at / (at + 800) else: from 1400 on it is far more.
  EXPECT_EQ(Found({"accuracy>prev.accuracy+0.5"}), ",1400,1400,1\n");
  EXPECT_EQ(Found({"metrics.accuracy>prev.metrics.accuracy+0.5 and "
                   "key=='params/out/bias'"}),
            "params/out/bias,1400,1400,1\n");
  // Of the first step there is none before.
  EXPECT_EQ(Found({"prev.step>=0", "100..100"}), "");
}

TEST_F(FindTest, ASlashBehindAKeyNamesWhatIsBelow) {
  for (const std::string& verb : {"ls", "diff"}) {
    const Result slash = Ask({verb, "latest:params/"});
    EXPECT_EQ(slash.out, Ask({verb, "latest:params"}).out);
    EXPECT_NE(slash.out, "");
  }
  EXPECT_EQ(Ask({"stat", "params/embed/"}).out,
            Ask({"stat", "params/embed"}).out);
  EXPECT_THAT(Ask({"get", "latest:params/"}).err,
              HasSubstr("`params` is a subtree"));
}

TEST_F(FindTest, AStepWithAMetricThatIsNoNumberIsNotHealthy) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  for (const auto& [step, loss] :
       {std::pair(1, 0.5), {2, INFINITY}, {3, -INFINITY}, {4, std::nan("")}}) {
    ASSERT_OK(store.Begin(step)
                  .PutInt("n", step)
                  .SetMetric("loss", loss)
                  .Commit()
                  .WaitCommitted(absl::Minutes(1)));
  }
  ASSERT_OK_AND_ASSIGN(const StepInfo healthy, store.Resolve(LatestHealthy()));
  EXPECT_EQ(healthy.step, 1);
  ASSERT_OK_AND_ASSIGN(const PolicyReport report,
                       store.PreviewPolicy("", Preservation(Healthy{})));
  for (const PolicyVerdict& verdict : report.steps) {
    // The newest stays whatever the policy says.
    EXPECT_EQ(verdict.kept, verdict.step == 1 || verdict.step == 4);
  }
  ASSERT_OK(store.Close());
}

TEST_F(FindTest, LeavesWithoutStatisticsAreSaidToBeLeftOut) {
  const std::string own = scratch_ / "unknown";
  for (const bool statistics : {false, true}) {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(own, {.create_if_missing = true,
                                           .statistics = statistics}));
    // The second session looks at what the first left unknown, and at one more.
    for (const std::int64_t step : {statistics ? 3 : 1, statistics ? 4 : 2}) {
      StepBuilder builder = store.Begin(step);
      for (const char* name : {"a", "b", statistics ? "c" : "b2"}) {
        const float value = std::nanf("");
        builder.Put(name,
                    {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
      }
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  const auto find = [&](const std::string& condition,
                        const std::string& range) {
    return Run({"-C", own, "find", condition, range});
  };
  Result result = find("nan>0", "1..2");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("nothing found in 2 steps"));
  EXPECT_THAT(result.err, HasSubstr("3 leaves have no statistics in 2 steps: "
                                    "saved with statistics off"));
  // The step before the range, too, where it is asked.
  result = find("nan>=prev.nan", "3..4");
  EXPECT_THAT(result.out, HasSubstr("a "));
  EXPECT_THAT(result.err, HasSubstr("3 leaves have no statistics in 1 step:"));
  EXPECT_THAT(find("nan>0", "3..4").err, Not(HasSubstr("statistics")));
  result = find("nan>0", "..");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, ::testing::AllOf(HasSubstr("a "), HasSubstr("c ")));
  EXPECT_THAT(result.err, HasSubstr("3 leaves have no statistics in 2 steps"));
  // Of leaves that are equal in 2 and 3 it is known from 3 on.
  result = find("nan>=prev.nan", "..");
  EXPECT_THAT(result.out, ::testing::ContainsRegex("a +4 +4 +1"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("c +4 +4 +1"));
  result = find("nan>=0", "1..");
  EXPECT_THAT(result.out, ::testing::ContainsRegex("a +3 +4 +2"));
  // What needs none is found of all.
  EXPECT_THAT(find("bytes>0", "..").err, Not(HasSubstr("statistics")));
  // Where all have them nothing is said.
  EXPECT_THAT(Ask({"find", "nan>0"}).err, Not(HasSubstr("statistics")));
  // Health is asked of what is known.
  EXPECT_THAT(Run({"-C", own, "show", "2"}).out,
              HasSubstr("NaN and Inf in 3 leaves: saved with statistics off"));
  result = Run({"-C", own, "show", "healthy"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("of 2 steps statistics were not recorded"));
}

// As `diff` compares it, the first step of a fork has one before it.
TEST_F(FindTest, TheFirstStepOfAForkHasOneBeforeIt) {
  const std::string own = scratch_ / "forked";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  const auto save = [&](std::int64_t step, const std::string& branch,
                        float value) {
    StepBuilder builder = store.Begin(step, {.branch = branch});
    builder.Put("w", {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
    builder.SetMetric("loss", value);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  };
  save(10, "", 1);
  save(20, "", 2);
  save(30, "", 9);
  ASSERT_OK(store.Fork(AtStep(20), "br"));
  save(25, "br", 5);
  save(30, "br", 5);
  ASSERT_OK(store.Close());
  const auto asked = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own});
    words.insert(words.end(), {"-o", "csv", "--no-header", "--columns"});
    words.push_back(words[2] == "find" ? "first,last,steps" : "step,last_step");
    const Result result = Run(std::move(words));
    EXPECT_TRUE(result.code == 0 || result.out.empty()) << result.err;
    return result.out;
  };
  const Json diff =
      Json::parse(Run({"-C", own, "diff", "br/25", "--json"}).out);
  EXPECT_EQ(diff["before"], "20");
  EXPECT_EQ(diff["changes"][0]["l2_before"], 2.0);
  for (const char* condition :
       {"l2>prev.l2", "loss>prev.loss", "l2==5 and prev.l2==2"}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"-b", "br"},
          {"-b", "br", "-k", "w"},
          {"br/25..br/30"},
          {"br/25", "-k", "*"}}) {
      std::vector<std::string> words = {"find", condition};
      words.insert(words.end(), more.begin(), more.end());
      EXPECT_EQ(asked(words), "25,25,1\n") << condition << " " << more.back();
    }
  }
  EXPECT_EQ(asked({"find", "l2>prev.l2"}), "20,30,2\n");
  // The values of a fork, which `history` has the same flag for.
  EXPECT_EQ(asked({"history", "w", "-b", "br"}), "25,30\n");
  EXPECT_EQ(asked({"history", "w", "..29", "--branch", "br"}), "25,25\n");
  EXPECT_EQ(asked({"history", "w"}), "30,30\n20,20\n10,10\n");
}

TEST_F(FindTest, AKeyThatIsNowhereIsAnError) {
  const auto find = [&](const std::string& glob) {
    return Ask({"find", "nan>1e9", "-k", glob});
  };
  const Json leaves = Json::parse(Ask({"ls", "--json"}).out)["leaves"];
  std::string key;
  for (const Json& leaf : leaves) {
    if (leaf["kind"] == "array") key = leaf["key"];
  }
  ASSERT_NE(key.find('/'), std::string::npos) << key;
  EXPECT_EQ(find(key).code, 1);
  EXPECT_THAT(find(key).err, HasSubstr("nothing found"));
  Result result = find(key + "x");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("has no key `" + key + "x`"));
  result = find("nothing/**");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("matches `nothing/**`"));
  // What is a subtree means all in it.
  const std::string subtree = key.substr(0, key.find('/'));
  EXPECT_EQ(find(subtree).code, 1);
  for (const char* range : {"..", "latest"}) {
    const std::string found = Found({"l2>0", range, "-k", subtree + "/**"});
    EXPECT_NE(found, "");
    EXPECT_EQ(Found({"l2>0", range, "-k", subtree}), found);
    EXPECT_EQ(Found({"l2>0", range, "-k", subtree, "-k", key}), found);
  }
}

// Of each form the rows, against the seconds that `log` says.
TEST_F(FindTest, StepsAreChosenByTheirTimes) {
  const Json log = Json::parse(Ask({"log", "--json"}).out)["steps"];
  std::vector<std::string> times;
  for (const Json& step : log) times.push_back(step["committed"]);
  const std::string middle = times[times.size() / 2];
  const auto count = [&](const std::string& condition) {
    const Result result = Ask({"log", "--where", condition, "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out)["steps"].size();
  };
  // Texts of one form sort as their times.
  const auto later = static_cast<std::size_t>(std::ranges::count_if(
      times, [&](const std::string& time) { return time > middle; }));
  const auto earlier = static_cast<std::size_t>(std::ranges::count_if(
      times, [&](const std::string& time) { return time < middle; }));
  std::string spaced = middle;
  spaced[10] = ' ';
  for (const std::string& form : {middle, spaced}) {
    EXPECT_EQ(count("committed>'" + form + "'"), later);
    EXPECT_EQ(count("committed<'" + form + "'"), earlier);
    EXPECT_EQ(
        count("committed<'" + form.substr(0, form.size() - 1) + "+00:00'"),
        earlier);
  }
  EXPECT_EQ(count("committed>'" + middle.substr(0, 4) + "-01-01'"),
            times.size());
  EXPECT_EQ(count("committed>'9999-01-01 00:00'"), 0u);
  const Result wrong = Ask({"log", "--where", "committed>'last week'"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("'2026-11-28 23:00'"));
}

TEST_F(FindTest, TheDemoIsTheSameEachTime) {
  const std::string other = scratch_ / "other";
  ASSERT_EQ(Run({"demo", other}).code, 0);
  const std::vector<std::string> log = {"log", "-o", "csv", "--columns",
                                        "step,digest,loss,new_bytes,note"};
  std::vector<std::string> of_other = {"-C", other};
  of_other.insert(of_other.end(), log.begin(), log.end());
  EXPECT_EQ(Run(of_other).out, Ask(log).out);
  // Not into what is there.
  const Result again = Run({"demo", other});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr(other));
}

}  // namespace
}  // namespace ckptree
