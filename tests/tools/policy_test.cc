// SPDX-License-Identifier: Apache-2.0

// `ckptree policy`, as somebody uses it who never did.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Steps 100 to 500, of which 100 is pinned and 200 tagged.
class PolicyCommandTest : public CommandRunner {
 protected:
  void SetUp() override { MakeStore(own_); }

  Result Do(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_, "policy"});
    return Run(std::move(words));
  }
  std::string Steps() {
    return Run({"-C", own_, "log", "-o", "csv", "--columns", "step"}).out;
  }

  const std::string own_ = scratch_ / "own";
};

TEST_F(PolicyCommandTest, SaysThatThereIsNone) {
  const Result result = Do({});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "no policy: every step stays\n");
  EXPECT_THAT(result.err, HasSubstr("--dry-run"));
}

TEST_F(PolicyCommandTest, DryRunChangesNothing) {
  const Result result = Do({"--set", "latest(1) | every(200)", "--dry-run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("policy, not set: latest(1) | every(200)\n"
                                     "STEP"));
  EXPECT_THAT(result.out, HasSubstr("latest(1)\n"));
  EXPECT_THAT(result.out, HasSubstr("every(200)\n"));
  EXPECT_THAT(result.out, HasSubstr("yes    pinned\n"));
  EXPECT_THAT(result.out, HasSubstr("every(200), tag warm\n"));
  EXPECT_THAT(result.out, HasSubstr("no\n"));
  EXPECT_THAT(result.out,
              HasSubstr("keeps 4 of 5 steps; removing the rest would free "));
  EXPECT_EQ(Do({}).out, "no policy: every step stays\n");
  EXPECT_EQ(Steps(), "step\n500\n400\n300\n200\n100\n");
}

TEST_F(PolicyCommandTest, SetsShowsAndApplies) {
  Result result = Do({"--set", "latest(1)"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("policy: latest(1)\nkeeps 3 of 5 steps; "));
  EXPECT_THAT(result.err, HasSubstr("leaves with the next save"));
  EXPECT_EQ(Steps(), "step\n500\n400\n300\n200\n100\n");
  result = Do({});
  EXPECT_THAT(result.out, StartsWith("policy: latest(1)\nset by hand, 20"));
  const nlohmann::json json =
      nlohmann::json::parse(Do({"-o", "json"}).out, nullptr, false);
  EXPECT_EQ(json["schema"], "ckptree.policy/1");
  EXPECT_EQ(json["policy"], "latest(1)");
  EXPECT_EQ(json["steps"].size(), 5u);
  EXPECT_EQ(json["steps"][0]["why"][0], "latest(1)");
  EXPECT_EQ(json["steps"][1]["kept"], false);
  EXPECT_GT(json["freed_bytes"], 0);

  EXPECT_EQ(Do({"--apply"}).code, 2);  // Nobody to ask.
  EXPECT_EQ(Do({"--apply", "--dry-run"}).code, 0);
  EXPECT_EQ(Steps(), "step\n500\n400\n300\n200\n100\n");
  result = Do({"--apply", "-y"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("removed step 300\nremoved step 400\n"
                                     "freed "));
  EXPECT_EQ(Steps(), "step\n500\n200\n100\n");
  EXPECT_EQ(Do({"--apply", "-y"}).out, "the policy keeps every step\n");
  EXPECT_EQ(Run({"-C", own_, "verify", "--deep"}).code, 0);
}

// What a program asks for as JSON is not answered in prose once all is changed.
TEST_F(PolicyCommandTest, AChangeIsNoTable) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{
           {"--set", "latest(1)", "--json"},
           {"--set", "latest(1)", "-o", "csv"},
           {"--set", "latest(1)", "--apply", "-y", "--json"},
           {"--apply", "-y", "--json"}}) {
    const Result result = Do(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(Do({}).out, "no policy: every step stays\n");
}

TEST_F(PolicyCommandTest, OfABranch) {
  ASSERT_EQ(Run({"-C", own_, "fork", "300", "--branch", "trial"}).code, 0);
  EXPECT_EQ(Do({"--branch", "trial", "--set", "healthy"}).out,
            "policy of branch trial: healthy(1)\nkeeps 0 of 0 steps\n");
  EXPECT_EQ(Do({}).out, "no policy: every step stays\n");
  EXPECT_THAT(Do({"--branch", "trial"}).out,
              StartsWith("policy of branch trial: healthy(1)\n"));
  EXPECT_EQ(Do({"--branch", "nowhere"}).code, 3);
}

TEST_F(PolicyCommandTest, APolicyThatMayKeepNothingIsRefused) {
  for (const std::string text :
       {"latest(0)", "steps(5)", "latest(3) & every(7)"}) {
    const Result result = Do({"--set", text});
    EXPECT_EQ(result.code, 2) << text << ": " << result.out;
    EXPECT_THAT(result.err, HasSubstr("may keep nothing")) << text;
  }
  EXPECT_EQ(Do({}).out, "no policy: every step stays\n");
  EXPECT_EQ(Steps(), "step\n500\n400\n300\n200\n100\n");
}

TEST_F(PolicyCommandTest, SaysWhatItWasAskedWrongly) {
  for (const char* policy :
       {"lates(3)", "latest(-1)", "every(0)", "custom(f)", "", "latest(3) |"}) {
    const Result result = Do({std::string("--set=") + policy});
    EXPECT_EQ(result.code, 2) << policy;
    EXPECT_THAT(result.err, HasSubstr("`ckptree help policy`")) << policy;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(Do({"latest(3)"}).code, 2);
  // A metric that no step has keeps all: that is said.
  const Result typo = Do({"--set", "best(los, min)", "--dry-run"});
  EXPECT_THAT(typo.err, HasSubstr("no step has a metric `los`"));
  EXPECT_THAT(Do({"--set", "best(loss, min)", "--dry-run"}).err,
              Not(HasSubstr("no step has")));
  EXPECT_THAT(
      Run({"help", "policy"}).out,
      AllOf(HasSubstr("every(1000, spaced)"), HasSubstr("budget(20GB)")));
}

TEST_F(PolicyCommandTest, OfANewerEngineOrAnotherProgram) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    ASSERT_OK(internal::StoreEngine::Of(store).settings().Adopt(
        "", {.policy = "geometric(2)", .set_by = "9.9"}));
    ASSERT_OK(store.Close());
  }
  Result result = Do({});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, StartsWith("policy: geometric(2)\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("geometric"), HasSubstr("9.9"),
                                HasSubstr("nothing is removed by it")));
  EXPECT_EQ(Do({"--apply", "-y"}).code, 2);
  EXPECT_EQ(Steps(), "step\n500\n400\n300\n200\n100\n");
  {
    ASSERT_OK_AND_ASSIGN(
        CheckpointManager manager,
        CheckpointManager::Open(own_, {.max_to_keep = 1,
                                       .best_fn =
                                           [](const PolicyStep& step) {
                                             return std::optional<double>(
                                                 step.step);
                                           },
                                       .best_mode = BestMode::kMax}));
    const auto fill = [](StepBuilder& step) {
      step.PutInt("n", 1);
      return absl::OkStatus();
    };
    EXPECT_TRUE(*manager.Save(600, fill));
    ASSERT_OK(manager.Close());
  }
  result = Do({});
  EXPECT_THAT(result.out, StartsWith("policy: best(best_fn(), max, 1)\nset by "
                                     "the options of a program, 20"));
  EXPECT_THAT(result.err, HasSubstr("function 'best_fn'"));
}

TEST_F(PolicyCommandTest, BesideATrainerItIsSetByIt) {
  ASSERT_OK_AND_ASSIGN(Store writer, Store::Open(own_));
  ASSERT_OK(writer.SetPolicy(LatestN{2}));
  EXPECT_THAT(Do({}).out, HasSubstr("keeps 4 of 5 steps"));
  EXPECT_EQ(Do({"--set", "all", "--dry-run"}).code, 0);
  EXPECT_EQ(Do({"--set", "all", "--wait", "0"}).code, 4);
  const Result result = Do({"--set", "latest(3)"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("keeps "));
  EXPECT_THAT(result.err, HasSubstr("done by pid "));
  ASSERT_OK_AND_ASSIGN(const PolicyInfo now, writer.Policy());
  EXPECT_EQ(now.text, "latest(3)");
  ASSERT_OK(writer.Close());
}

}  // namespace
}  // namespace ckptree
