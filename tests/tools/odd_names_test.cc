// SPDX-License-Identifier: Apache-2.0

// Names, numbers and arguments that are not what a column expects.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "ckptree/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class OddNamesTest : public CommandRunner {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(own_, {.create_if_missing = true}));
    for (const std::int64_t step : {1, 2}) {
      const auto of_step = static_cast<double>(step);
      StepBuilder builder = store.Begin(step);
      builder.PutFloat("lr", of_step);
      const std::vector<double> large = {1e200, -1e200 * of_step};
      builder.Put(
          "large",
          {.dtype = DType::kFloat64, .shape = {2}, .data = large.data()});
      const std::vector<double> close = {1, 1 + 1e-9 * of_step};
      builder.Put(
          "close",
          {.dtype = DType::kFloat64, .shape = {2}, .data = close.data()});
      const double small = 1e-200;
      builder.Put("small",
                  {.dtype = DType::kFloat64, .shape = {1}, .data = &small});
      builder.Tie("tied", "lr");
      for (const char* name : {"nan", "inf", "leaves", "step", "metrics.nan"}) {
        builder.SetMetric(name, of_step / 4);
      }
      builder.SetMetric("two\nlines", of_step);
      if (step == 2) builder.SetNote("a \"note\",\r\nof two lines");
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(2)));
    }
    ASSERT_OK(store.Close());
  }

  Result Do(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_});
    return Run(std::move(words));
  }
  std::string Out(std::vector<std::string> words) {
    return Do(std::move(words)).out;
  }

  const std::string own_ = scratch_ / "own";
};

TEST_F(OddNamesTest, AMetricThatIsNamedAsAColumnHidesNone) {
  EXPECT_EQ(Out({"log", "-o", "csv", "--columns",
                 "step,leaves,nan,metrics.step,metrics.leaves,metrics.metrics."
                 "nan,metrics.nan"}),
            "step,leaves,nan,metrics.step,metrics.leaves,metrics.metrics.nan,"
            "metrics.nan\n"
            "2,4,0,0.5,0.5,0.5,0.5\n"
            "1,4,0,0.25,0.25,0.25,0.25\n");
  EXPECT_EQ(Out({"log", "--where", "metrics.inf<0.3", "-o", "csv",
                 "--no-header", "--columns", "step"}),
            "1\n");
  EXPECT_EQ(Out({"log", "--where", "inf==0", "-o", "csv", "--no-header",
                 "--columns", "step"}),
            "2\n1\n");
  EXPECT_THAT(Out({"log"}), HasSubstr("  metrics.inf  "));
}

TEST_F(OddNamesTest, FindSaysWhichOfTheTwoIsMeant) {
  Result result = Do({"find", "leaves>0 and nan==0"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the metric of that name is `metrics.leaves`"),
                    HasSubstr("the metric of that name is `metrics.nan`")));
  result = Do({"find", "prev.step<step"});
  EXPECT_THAT(result.err, HasSubstr("is `prev.metrics.step`"));
  result = Do({"find", "metrics.inf==0.5", "-o", "csv", "--no-header",
               "--columns", "first,last"});
  EXPECT_EQ(result.out, "2,2\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(OddNamesTest, CsvKeepsLineEnds) {
  EXPECT_EQ(
      Out({"log", "-n", "1", "-o", "csv", "--columns", "step,note,two\nlines"}),
      "step,note,\"two\nlines\"\n"
      "2,\"a \"\"note\"\",\r\nof two lines\",2.0\n");
  EXPECT_EQ(Out({"log", "-n", "1", "-o", "tsv", "--no-header", "--columns",
                 "step,note"}),
            "2\ta \"note\",\\r\\nof two lines\n");
}

TEST_F(OddNamesTest, NumbersWhoseDigitsAreNotThereAreMarked) {
  const Result result = Do({"stat"});
  EXPECT_EQ(result.code, 0) << result.err;
  std::string large, close, small;
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n');
  for (const std::string& line : lines) {
    if (line.starts_with("large")) large = line;
    if (line.starts_with("close")) close = line;
    if (line.starts_with("small")) small = line;
  }
  EXPECT_THAT(large, AllOf(HasSubstr(" >1e154 "), HasSubstr(" ~"),
                           Not(HasSubstr("inf"))));
  EXPECT_THAT(close, AllOf(HasSubstr(" ~"), Not(HasSubstr(">"))));
  // Of one element the deviation is zero, whatever its square.
  EXPECT_THAT(small, AllOf(HasSubstr(" <1e-150 "), Not(HasSubstr("~"))));
  const nlohmann::json json =
      nlohmann::json::parse(Out({"stat", "large", "--json"}));
  EXPECT_EQ(json["arrays"][0]["l2"], "Infinity");
}

TEST_F(OddNamesTest, ALeafIsCountedByOneDefinition) {
  EXPECT_EQ(nlohmann::json::parse(Out({"log", "--json"}))["steps"][0]["leaves"],
            4);
  EXPECT_THAT(Out({"verify", "2"}), HasSubstr(" 4 leaves,"));
  // Of the five names one is of a tie.
  EXPECT_THAT(Out({"diff", "2", "2"}),
              HasSubstr("no difference, 4 leaves are the same"));
}

TEST_F(OddNamesTest, ADroppedBranchIsToldWhereOthersBegan) {
  ASSERT_EQ(Do({"fork", "1", "--branch", "first"}).code, 0);
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    StepBuilder builder = store.Begin(2, {.branch = "first"});
    builder.PutFloat("lr", 3);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(2)));
    ASSERT_OK(store.Close());
  }
  ASSERT_EQ(Do({"fork", "first/2", "--branch", "second"}).code, 0);
  ASSERT_EQ(Do({"fork", "--drop", "first", "-y"}).code, 0);
  EXPECT_THAT(Out({"fork"}), HasSubstr("2 of a dropped branch"));
  const nlohmann::json json = nlohmann::json::parse(Out({"fork", "--json"}));
  const nlohmann::json& second = json["branches"][1];
  EXPECT_EQ(second["branch"], "second");
  EXPECT_TRUE(second["from"].is_null());
  EXPECT_TRUE(second["origin_branch"].is_null());
  EXPECT_EQ(second["origin_step"], 2);
}

TEST_F(OddNamesTest, ALongArgumentIsCutInTheMiddle) {
  const std::string word(100000, 'x');
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"show", word},
        {"ls", "2:" + word},
        {word},
        {"log", "--sort", word}}) {
    const Result result = Do(words);
    EXPECT_GT(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr("xxx...xxx"));
    EXPECT_LT(result.err.size(), 2000u);
  }
}

TEST_F(OddNamesTest, ForceOntoAFolderSaysSo) {
  const std::string folder = scratch_ / "folder";
  std::filesystem::create_directories(folder + "/in");
  for (const char* format : {"npy", "npz", "safetensors"}) {
    const Result result =
        Do({"export", "2", folder, "--format", format, "--force"});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("folder is a folder: --force writes over files "
                                "alone"),
                      HasSubstr("move the folder away")));
  }
  EXPECT_TRUE(std::filesystem::exists(folder + "/in"));
  std::filesystem::remove(folder + "/in");
  EXPECT_EQ(Do({"export", "2", folder, "--format", "npy", "--force"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder + "/large.npy"));
}

TEST_F(OddNamesTest, DiffNamesTheTypeOnBothSides) {
  EXPECT_EQ(Out({"diff", "1", "2", "-o", "csv", "--no-header", "--columns",
                 "key,before,after"}),
            "close,float64[2],float64[2]\n"
            "large,float64[2],float64[2]\n"
            "lr,float,float\n"
            "tied,float,float\n");
}

// Keys as other trees have them, and a step and its key as two words.
TEST_F(OddNamesTest, WhatWasMeant) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    StepBuilder builder = store.Begin(3);
    builder.PutInt("lr", 1).PutInt("list/[0]/x", 1);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(2)));
    ASSERT_OK(store.Close());
  }
  for (const char* key : {"list/0/x", "list.0.x", "list[0].x"}) {
    const Result result = Do({"get", std::string("3:") + key});
    EXPECT_EQ(result.code, 3) << key;
    EXPECT_THAT(result.err, HasSubstr("Did you mean `list/[0]/x`?"));
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"get", "2", "lr"}, {"get", "lr", "2"}}) {
    const Result result = Do(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("one word: `2:lr`"));
  }
  for (const auto& [asked, meant] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"ls", "2", "lr"}, "one word: `2:lr`"},
           {{"diff", "1", "2", "lr"}, "`ckptree diff 1:lr 2`"},
           {{"fork", "2", "trial"}, "`ckptree fork 2 --branch trial`"},
           {{"policy", "latest(3)"}, "`ckptree policy --set 'latest(3)'`"},
           {{"find", "l2>0", "li*"}, "-k 'li*' names leaves"}}) {
    const Result result = Do(asked);
    EXPECT_EQ(result.code, 2) << asked[0];
    EXPECT_THAT(result.err, HasSubstr(meant));
  }
  EXPECT_THAT(Do({"get", "1:lr", "2:lr"}).err, Not(HasSubstr("one word")));
  EXPECT_THAT(Do({"find", "l2>0", "none/1..none/2"}).err,
              AllOf(HasSubstr("none"), Not(HasSubstr("no range of steps"))));
  // These take a key alone.
  for (const char* verb : {"history", "stat", "hist"}) {
    const Result result = Do({verb, "2:lr"});
    EXPECT_EQ(result.code, 3) << verb;
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("`2:lr` names a step, and a key alone"),
              HasSubstr("`stat lr --rev 2`"), HasSubstr("`history lr 2`")));
  }
  // It may be a step of a branch.
  for (const char* verb : {"get", "show"}) {
    const Result result = Do({verb, "list/0"});
    EXPECT_EQ(result.code, 3) << verb;
    EXPECT_THAT(result.err, HasSubstr("no branch 'list'"));
    EXPECT_THAT(result.err, HasSubstr("`latest:list/0`"));
  }
}

// Other commands take the path of what they are asked about as a word.
TEST_F(OddNamesTest, AStoreStandsBehindItsFlag) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"log", own_},
        {"ls", own_},
        {"gc", own_},
        {"history", own_, "lr"},
        {"get", own_, "1:lr"},
        {"verify", own_}}) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, 2) << words[0];
    EXPECT_THAT(result.err, HasSubstr("`" + own_ + "` is a store"));
    EXPECT_THAT(result.err,
                HasSubstr("`ckptree " + words[0] + " -C " + own_ + "`"));
  }
  // The name of a tag may be that of a store beside it.
  EXPECT_THAT(Do({"tag", own_, "9"}).err, Not(HasSubstr("is a store")));
  // One that takes a store's path says what it has against this one.
  EXPECT_THAT(Run({"copy", own_, own_ + "/none", "9"}).err,
              Not(HasSubstr("is a store")));
}

// What is in a file is taken for all there is.
TEST_F(OddNamesTest, GetWritesAllIntoAFile) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    StepBuilder builder = store.Begin(3);
    std::vector<float> many(1500);
    std::iota(many.begin(), many.end(), 0.0f);
    builder.Put(
        "many",
        {.dtype = DType::kFloat32, .shape = {1500}, .data = many.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(2)));
    ASSERT_OK(store.Close());
  }
  const std::string whole = Do({"get", "3:many", "--full"}).out;
  const Result shown = Do({"get", "3:many"});
  EXPECT_THAT(shown.out, HasSubstr("..."));
  EXPECT_THAT(shown.err, HasSubstr("--full has all"));
  EXPECT_EQ(Do({"get", "3:many", "--full"}).err, "");
  const std::string folder = own_ + ".files";
  std::filesystem::create_directory(folder);
  const auto text_of = [](const std::string& name) {
    std::ifstream file(name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const char* name : {"/plain", "/w.txt"}) {
    EXPECT_EQ(Do({"get", "3:many", "--out", folder + name}).code, 0);
    EXPECT_EQ(text_of(folder + name), whole);
  }
  for (const char* name : {"/w.safetensors", "/w.npz", "/w.pt", "/w.bin"}) {
    const Result refused = Do({"get", "3:many", "--out", folder + name});
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("`ckptree export REV:KEY FILE`"));
    EXPECT_FALSE(std::filesystem::exists(folder + name));
  }
  EXPECT_EQ(
      Do({"get", "3:many", "-o", "text", "--out", folder + "/w.bin"}).code, 0);
  EXPECT_EQ(text_of(folder + "/w.bin"), whole);
}

// Who cannot be asked is told of a step that is not there.
TEST_F(OddNamesTest, AWrongStepComesBeforeTheQuestion) {
  Result result = Do({"rm", "7"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("there is no step 7"));
  result = Do({"rm", "1"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("nobody to ask"));
  EXPECT_THAT(Do({"log", "--columns", "step", "-o", "csv"}).out,
              HasSubstr("1"));
}

}  // namespace
}  // namespace ckptree
