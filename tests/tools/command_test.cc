// SPDX-License-Identifier: Apache-2.0

// The program on a real store: what it prints, where, and how it ends.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/temp_dir.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

// One store for all tests, which only read it.
class CommandTest : public CommandRunner {
 protected:
  static void SetUpTestSuite() {
    shared_ = new testing::TempDir;
    MakeStore(store());
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static std::string store() { return *shared_ / "store"; }

  // With the shared store.
  Result Ask(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", store()});
    return Run(std::move(words));
  }
  std::string Out(std::vector<std::string> words) {
    const Result result = Ask(std::move(words));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

 private:
  static inline testing::TempDir* shared_ = nullptr;
};

TEST_F(CommandTest, HelpAndVersionNeedNoStore) {
  EXPECT_EQ(Run({}).code, 0);
  EXPECT_THAT(Run({}).out, HasSubstr("ckptree log -n 5"));
  EXPECT_EQ(Run({"--help"}).out, Run({"help"}).out);
  EXPECT_EQ(Run({"ls", "--help"}).out, Run({"help", "ls"}).out);
  EXPECT_THAT(Run({"help", "exit-codes"}).out, HasSubstr("130  interrupted"));
  EXPECT_THAT(Run({"version"}).out, StartsWith("ckptree "));
  EXPECT_EQ(Run({"--version"}).out, Run({"version"}).out);
  EXPECT_EQ(Json::parse(Run({"version", "--json"}).out)["schema"],
            "ckptree.version/1");
  EXPECT_THAT(Run({"completion", "bash"}).out, HasSubstr("complete "));
}

TEST_F(CommandTest, WrongUsageSaysWhatWasMeant) {
  Result result = Run({"lss"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "ckptree: unknown command `lss`. Did you mean `ls`?\n"
            "  `ckptree help` lists the commands\n");
  result = Run({"--timeout", "3", "-C", "/nowhere", "log"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              StartsWith("ckptree: `--timeout` stands in front of `3`, which "
                         "is no command\n"));
  EXPECT_THAT(Run({"-q", "--color=never", "lss"}).err,
              HasSubstr("unknown command `lss`"));
  for (const auto& [address, said] : std::map<std::string, std::string>{
           {"s3:/b/x", "begins with s3://"},
           {"s3:b", "begins with s3://"},
           {"file:relative", "file:///runs/lm"},
           {"S3://b/run", "in lower case, s3://"}}) {
    EXPECT_THAT(Run({"-C", address, "log"}).err, HasSubstr(said));
  }
  EXPECT_THAT(Run({"-C", "s3://b/run", "rm", "1"}).err,
              AllOf(HasSubstr("has this as its remote"),
                    Not(HasSubstr("nobody to ask"))));
  result = Ask({"log", "--limt", "3"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown flag `--limt`. Did you mean "
                                    "`--limit`?"));
  EXPECT_EQ(Ask({"log", "--limit", "x"}).code, 2);
  EXPECT_EQ(Ask({"log", "--limit"}).code, 2);
  EXPECT_EQ(Ask({"log", "-o", "xml"}).code, 2);
  EXPECT_EQ(Ask({"log", "--where", "loss"}).code, 2);
  EXPECT_EQ(Ask({"log", "1", "2"}).code, 2);
  EXPECT_EQ(Ask({"get"}).code, 2);
  EXPECT_EQ(Ask({"get", "latest"}).code, 2);
  EXPECT_THAT(Ask({"ls", "params/w"}).err, HasSubstr("latest:params/w"));
}

TEST_F(CommandTest, FindsTheStore) {
  Result result = Run({"log"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("-C DIRECTORY"));
  EXPECT_EQ(Run({"log", "-C", scratch_ / "none"}).code, 3);
  EXPECT_EQ(Run({"log", "--store=" + store(), "-n1"}).code, 0);
  here_ = store() + "/db";
  EXPECT_EQ(Run({"log"}).code, 0);
  here_ = "/";
  setenv("CKPTREE_STORE", store().c_str(), 1);
  EXPECT_EQ(Run({"log"}).code, 0);
  unsetenv("CKPTREE_STORE");
}

TEST_F(CommandTest, FindsTheStoreThatLacksAPart) {
  namespace fs = std::filesystem;
  const std::string all = Out({"log", "-o", "csv"});
  for (const std::string part : {"db", "journal", "LOCK"}) {
    const std::string folder = scratch_ / ("without_" + part);
    fs::copy(store(), folder, fs::copy_options::recursive);
    fs::create_directory(folder + "/deeper");
    here_ = folder + "/deeper";
    ASSERT_GT(fs::remove_all(folder + "/" + part), 0u);
    const Result found = Run({"log", "-o", "csv"});
    // Found, whatever it has to say.
    EXPECT_THAT(found.err, Not(HasSubstr("no store here"))) << part;
    if (part == "LOCK") {
      EXPECT_EQ(found.out, all);
    }
  }
  // Folders of others with such names are not stores.
  const std::string other = scratch_ / "other";
  fs::create_directories(other + "/db/deeper");
  fs::create_directories(other + "/journal");
  std::ofstream(other + "/journal/monday.txt") << "a day";
  here_ = other + "/db/deeper";
  const Result none = Run({"log"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("no store here"));
}

TEST_F(CommandTest, AStoreOfAnotherMachineIsRefused) {
  const std::string folder = scratch_ / "empty";
  std::filesystem::create_directory(folder);
  here_ = folder;
  const std::vector<std::vector<std::string>> commands = {
      {"-C", "gs://bucket/run", "log"},
      {"-C", "s3://bucket/run", "rm", "latest", "--yes"},
      {"-C", "s3://bucket/run", "policy", "--set", "latest(1)"},
      {"repair", "s3://bucket/run", "--yes"},
      {"recover", "s3://bucket/run", "here"},
      {"recover", store(), "s3://bucket/run"}};
  for (const std::vector<std::string>& words : commands) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("://bucket/run"));
    EXPECT_THAT(result.err,
                ::testing::ContainsRegex("'(s3|gs)'|ckptree copy s3://"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(Run({"-C", "file://" + store(), "log"}).out, Out({"log"}));
}

TEST_F(CommandTest, LogShowsTheNewestFirst) {
  EXPECT_EQ(Out({"log", "-o", "csv", "--columns", "step,loss,acc,tags,pinned"}),
            "step,loss,acc,tags,pinned\n"
            "500,0.002,0.5,,false\n"
            "400,0.25,0.4,,false\n"
            "300,0.0033333333333333335,0.3,,false\n"
            "200,0.005,,warm,false\n"
            "100,0.01,0.1,,true\n");
  EXPECT_EQ(
      Out({"log", "200..300", "-o", "tsv", "--columns", "step", "--no-header"}),
      "300\n200\n");
  EXPECT_EQ(Out({"log", "@warm..latest~1", "-o", "tsv", "--columns", "step",
                 "--no-header", "--reverse"}),
            "200\n300\n400\n");
  EXPECT_EQ(Out({"log", "--where", "loss<0.004 && step>=300", "--sort", "-loss",
                 "-o", "tsv", "--columns", "step", "--no-header"}),
            "300\n500\n");
  EXPECT_EQ(
      Out({"log", "-n", "1", "-o", "tsv", "--columns", "step", "--no-header"}),
      "500\n");
}

TEST_F(CommandTest, RangesAreCountedFromTheEnd) {
  const std::vector<std::string> last = {"--columns", "step", "-o", "tsv",
                                         "--no-header"};
  const auto steps = [&](const std::string& range) {
    std::vector<std::string> words = {"log", range};
    words.insert(words.end(), last.begin(), last.end());
    return Out(words);
  };
  EXPECT_EQ(steps("-2..-1"), "500\n400\n");
  EXPECT_EQ(steps("-2.."), "500\n400\n");
  EXPECT_EQ(steps("..-4"), "200\n100\n");
  EXPECT_EQ(steps("400..-1"), "500\n400\n");
  EXPECT_EQ(Ask({"diff", "-2..-1", "--json"}).out,
            Ask({"diff", "400..500", "--json"}).out);
  EXPECT_EQ(Ask({"diff", "--json", "-2..-1"}).code, 1);
  EXPECT_EQ(Out({"rm", "-3..-2", "--dry-run"}),
            Out({"rm", "300..400", "--dry-run"}));
  EXPECT_EQ(Out({"verify", "-2..-1"}), Out({"verify", "400..500"}));
  // A flag is one, and a limit.
  EXPECT_EQ(
      Ask({"log", "-2", "--columns", "step", "-o", "tsv", "--no-header"}).out,
      "500\n400\n");
  EXPECT_THAT(Ask({"log", "-x..-1"}).err, HasSubstr("unknown flag"));
  EXPECT_THAT(Ask({"log", "-q2.."}).err, HasSubstr("unknown flag"));
  EXPECT_EQ(Ask({"log", "-0..-1"}).code, 2);
  EXPECT_EQ(Ask({"log", "-9..-1"}).code, 3);
  EXPECT_THAT(Ask({"show", "-2..-1"}).err, HasSubstr("a range of steps"));
  // One step is not counted so: it may be what a script has computed.
  EXPECT_EQ(Ask({"show", "--", "-1"}).code, 2);
  EXPECT_EQ(Ask({"rm", "-y", "--", "-1"}).code, 2);
  // What comes behind one is a word of its own, for completion, too.
  EXPECT_THAT(Out({"__complete", "--", "diff", "-C", store(), "-2..-1", "--v"}),
              HasSubstr("--values"));
}

TEST_F(CommandTest, LogTableNamesWhatIsWrong) {
  const std::string table = Out({"log"});
  EXPECT_THAT(table, HasSubstr("NaN and Inf in 2 leaves"));
  EXPECT_THAT(table, HasSubstr("@warm"));
  EXPECT_THAT(table, HasSubstr("pinned"));
  EXPECT_THAT(table, HasSubstr("the last \\x1b[31m one"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
}

TEST_F(CommandTest, LogJson) {
  const Json json = Json::parse(Out({"log", "--json"}));
  EXPECT_EQ(json["schema"], "ckptree.log/1");
  ASSERT_EQ(json["steps"].size(), 5u);
  EXPECT_EQ(json["steps"][0]["step"], 500);
  EXPECT_EQ(json["steps"][0]["metrics"]["acc"], 0.5);
  EXPECT_EQ(json["steps"][3]["tags"], Json::array({"warm"}));
  EXPECT_THAT(json["steps"][0]["committed"].get<std::string>(),
              MatchesRegex("[0-9-]+T[0-9:.]+Z"));
}

TEST_F(CommandTest, LsListsLeaves) {
  EXPECT_EQ(Out({"ls", "latest:params", "-o", "tsv", "--columns",
                 "key,dtype,bytes", "--no-header"}),
            "params/frozen\tfloat32\t4000\n"
            "params/half\tbfloat16\t16\n"
            "params/nibbles\tint4\t2\n"
            "params/tied\t\t\n"
            "params/w\tfloat32\t12288\n");
  const std::string table = Out({"ls", "300", "--stats"});
  EXPECT_THAT(table, HasSubstr("-> params/w"));
  EXPECT_THAT(table, HasSubstr("\"odd \\u001b name\""));
  EXPECT_THAT(table, Not(HasSubstr("nothing")));
  EXPECT_THAT(Out({"ls", "300", "--all"}), HasSubstr("nothing"));
  EXPECT_EQ(Out({"ls", "300", "--where", "nan>0 && inf==0", "-o", "tsv",
                 "--columns", "key", "--no-header"}),
            "params/w\n");
  EXPECT_EQ(Out({"ls", "500:params/*ed", "-o", "tsv", "--columns", "key",
                 "--no-header"}),
            "params/tied\n");
  EXPECT_EQ(Out({"ls", "500:re:^lay", "-o", "tsv", "--columns", "key",
                 "--no-header"}),
            "layers/[0]/bias\n");
  EXPECT_EQ(Out({"ls", ":['params']['w']", "-o", "tsv", "--columns", "key",
                 "--no-header"}),
            "params/w\n");
  EXPECT_THAT(Out({"ls", "500", "--depth", "1", "-o", "tsv", "--no-header"}),
              HasSubstr("params\t4\t4084\t16306\n"));
  const Json json = Json::parse(Out({"ls", "500:params/frozen", "--json"}));
  EXPECT_EQ(json["schema"], "ckptree.ls/1");
  EXPECT_EQ(json["step"], 500);
  EXPECT_EQ(json["leaves"][0]["shape"], Json::array({1000}));
  EXPECT_EQ(json["leaves"][0]["since"], 100);
  EXPECT_EQ(json["leaves"][0]["min"], 2.5);
}

TEST_F(CommandTest, ShowTellsAllOfAStepAndALeaf) {
  EXPECT_THAT(Out({"show", "200"}),
              AllOf(HasSubstr("@warm"), HasSubstr("metric loss")));
  const Json step = Json::parse(Out({"show", "100", "--json"}));
  EXPECT_EQ(step["schema"], "ckptree.step/1");
  EXPECT_EQ(step["pinned"], true);
  EXPECT_EQ(step["base"], 0);
  EXPECT_THAT(Out({"show", "500:params/frozen"}), HasSubstr("step 100"));
  const Json leaves = Json::parse(Out({"show", "500:params/tied", "--json"}));
  const Json& leaf = leaves["leaves"][0];
  EXPECT_EQ(leaf["tie_to"], "params/w");
  EXPECT_EQ(leaf["chunks"], 4);
  EXPECT_EQ(leaf["statistics"]["min"], 500.0);
}

TEST_F(CommandTest, ShowCutsWhatAProgramNotesAtLength) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(own, {.create_if_missing = true}));
  StepBuilder builder = store.Begin(1);
  builder.PutInt("a", 1).SetLineage("plan", std::string(501, 'x'));
  ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  ASSERT_OK(store.Close());
  EXPECT_THAT(Run({"-C", own, "show", "1"}).out,
              HasSubstr(" " + std::string(500, 'x') + "...\n"));
  const Json step = Json::parse(Run({"-C", own, "show", "1", "--json"}).out);
  EXPECT_EQ(step["lineage"]["plan"], std::string(501, 'x'));
}

TEST_F(CommandTest, GetPrintsSlices) {
  EXPECT_EQ(Out({"get", "500:params/w[0, :3]"}), "[500.0 501.0 502.0]\n");
  EXPECT_EQ(Out({"get", "500:params/w[-1, -1]"}), "3571.0\n");
  EXPECT_EQ(Out({"get", "500:params/w[10:40:10, 47::-40]"}),
            "[[1027.0  987.0]\n [1507.0 1467.0]\n [1987.0 1947.0]]\n");
  EXPECT_EQ(Out({"get", "500:params/tied[0, 0]"}), "500.0\n");
  EXPECT_EQ(Out({"get", "latest:params/half"}),
            "[  1.0   0.1 -3.14   nan   0.0   inf   2.0   3.0]\n");
  EXPECT_EQ(Out({"get", "latest:params/nibbles"}), "[ 1  2 -8 -1]\n");
  EXPECT_EQ(Out({"get", "latest:params/nibbles[1:3]"}), "[ 2 -8]\n");
  EXPECT_EQ(Out({"get", "best:loss:min:params/w[0,0]"}), "500.0\n");
  EXPECT_EQ(Out({"get", "best:loss:max:params/w[0,0]"}), "400.0\n");
  EXPECT_EQ(Out({"get", "latest~2:params/w[0,0]"}), "300.0\n");
  EXPECT_EQ(Out({"get", "@warm:params/w[0,0]"}), "200.0\n");
}

TEST_F(CommandTest, GetTriesTheWholeKeyFirst) {
  EXPECT_EQ(Out({"get", "500:count/[3]"}), "500\n");
  EXPECT_EQ(Out({"get", "500:layers/[0]/bias[1]"}), "2.5\n");
  EXPECT_EQ(Out({"get", "500:['layers'][0]['bias'][0:1]"}), "[2.5]\n");
}

TEST_F(CommandTest, GetElidesLargeArraysUnlessFull) {
  const std::string edges = Out({"get", "500:params/w"});
  EXPECT_THAT(edges, StartsWith("[[ 500.0  501.0  502.0 ...  545.0  546.0  "
                                "547.0]\n"));
  EXPECT_THAT(edges, HasSubstr("\n ...\n"));
  EXPECT_THAT(edges, HasSubstr("3569.0 3570.0 3571.0]]\n"));
  EXPECT_THAT(Out({"get", "500:params/w", "--full"}), Not(HasSubstr("...")));
}

TEST_F(CommandTest, GetValuesThatAreNoArrays) {
  EXPECT_EQ(Out({"get", "500:lr"}), "0.001\n");
  EXPECT_EQ(Out({"get", "500:config"}), "{\"depth\":12}\n");
  EXPECT_EQ(Out({"get", "500:\"odd \\u001b name\""}), "two\nlines\n");
  EXPECT_EQ(Out({"get", "500:blob"}), "\\x00\\x01raw\n");
  EXPECT_EQ(Out({"get", "500:blob", "-o", "raw"}), std::string("\0\x01raw", 5));
  const Json config = Json::parse(Out({"get", "500:config", "--json"}));
  EXPECT_EQ(config["leaves"][0]["data"]["depth"], 12);
  EXPECT_EQ(Ask({"get", "500:lr[0]"}).code, 2);
}

TEST_F(CommandTest, GetWritesFormats) {
  const Json json =
      Json::parse(Out({"get", "300:params/w[0, 6:9]", "-o", "json"}));
  EXPECT_EQ(json["schema"], "ckptree.get/2");
  EXPECT_EQ(json["leaves"][0]["shape"], Json::array({3}));
  EXPECT_EQ(json["leaves"][0]["data"], Json::parse(R"([306.0, "NaN", 308.0])"));
  EXPECT_EQ(Out({"get", "500:params/w[:2, :2]", "-o", "csv"}),
            "500.0,501.0\n548.0,549.0\n");

  const std::string file = scratch_ / "w.npy";
  const Result result =
      Ask({"get", "500:params/w", "-o", "npy", "--out", file});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string npy = ReadFile(file);
  ASSERT_EQ(npy.size(), 128u + 64 * 48 * 4);
  EXPECT_THAT(npy.substr(0, 80), HasSubstr("'<f4'"));
  float last = 0;
  npy.copy(reinterpret_cast<char*>(&last), 4, npy.size() - 4);
  EXPECT_EQ(last, 3571.0f);
  EXPECT_EQ(npy.substr(128), Out({"get", "500:params/w", "-o", "raw"}));
  // As the name says where nothing else does.
  const std::string named = scratch_ / "named.npy";
  EXPECT_EQ(Ask({"get", "500:params/w", "--out", named}).code, 0);
  EXPECT_EQ(ReadFile(named), npy);
  EXPECT_EQ(Ask({"get", "500:params/w", "-o", "csv", "--out", named}).code, 0);
  EXPECT_THAT(ReadFile(named), StartsWith("500.0,"));
}

TEST_F(CommandTest, AFailedGetLeavesNoFile) {
  const std::string file = scratch_ / "w.npy";
  EXPECT_EQ(Ask({"get", "500:params/w[99]", "-o", "npy", "--out", file}).code,
            2);
  for (const auto& entry :
       std::filesystem::directory_iterator(scratch_.path())) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("npy")));
  }
  EXPECT_EQ(Ask({"get", "500:lr", "--out", "/nowhere/x"}).code, 2);
}

TEST_F(CommandTest, WhatIsMissingIsThreeAndNamesWhatIsNear) {
  Result result = Ask({"get", "500:params/ww"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("Did you mean `params/w`?"));
  result = Ask({"show", "250"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("200 and 300"));
  EXPECT_EQ(Ask({"show", "@none"}).code, 3);
  EXPECT_EQ(Ask({"ls", "500:nowhere"}).code, 3);
  EXPECT_EQ(Ask({"ls", "500:no*where"}).code, 3);
  result = Ask({"get", "500:params"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("a subtree of 4 leaves"));
}

TEST_F(CommandTest, VerifyFindsAWholeStoreClean) {
  for (const char* level : {"--quick", "--quiet", "--deep"}) {
    const Result result = Ask({"verify", level});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("5 steps, "));
    EXPECT_THAT(result.out, HasSubstr("no damage"));
  }
  const Json json = Json::parse(Out({"verify", "latest", "--json"}));
  EXPECT_EQ(json["schema"], "ckptree.verify/1");
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["steps"], 1);
}

TEST_F(CommandTest, CompletesCommandsFlagsStepsAndKeys) {
  EXPECT_EQ(Run({"__complete", "--", "sh"}).out, "show\n");
  EXPECT_EQ(Run({"__complete", "--", "log", "--lim"}).out, "--limit\n");
  EXPECT_EQ(Run({"__complete", "--", "-C", store(), "get", "3"}).out, "300:\n");
  EXPECT_EQ(Run({"__complete", "--", "-C", store(), "get", "300:pa"}).out,
            "300:params/\n");
  EXPECT_EQ(Run({"__complete", "--", "get", "300:pa"}).code, 0);
}

// Help, completion and the manual page of each verb have the same flags.
TEST_F(CommandTest, EachVerbIsCompletedAndHasAPage) {
  int verbs = 0;
  for (const absl::string_view name : absl::StrSplit(
           Run({"__complete", "--", ""}).out, '\n', absl::SkipEmpty())) {
    const std::string verb(name);
    ++verbs;
    EXPECT_THAT(Run({"__complete", "--", verb}).out,
                HasSubstr(absl::StrCat(verb, "\n")));
    const std::string help = Run({"help", verb}).out;
    const std::string page = Run({"help", "--man", verb}).out;
    EXPECT_THAT(page, HasSubstr(absl::StrCat(".B ckptree ", verb, "\n")));
    const std::string completed = Run({"__complete", "--", verb, "--"}).out;
    int flags = 0;
    for (const absl::string_view line :
         absl::StrSplit(help.substr(help.find("\nFlags:\n")), '\n')) {
      // "  -o, --output FORMAT ..."
      if (line.size() < 8 || line.substr(6, 2) != "--") continue;
      ++flags;
      const std::string flag(line.substr(6, line.find(' ', 6) - 6));
      EXPECT_THAT(completed, HasSubstr(absl::StrCat(flag, "\n"))) << verb;
      EXPECT_THAT(page, HasSubstr(absl::StrReplaceAll(flag, {{"-", "\\-"}})))
          << verb;
    }
    EXPECT_GT(flags, 2) << help;
  }
  EXPECT_GT(verbs, 30);
}

TEST_F(CommandTest, CompletesWhatBelongsThere) {
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "--"});
    const Result result = Run(std::move(words));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string at = "--store=" + store();
  EXPECT_EQ(complete({at, "get", "3"}), "300:\n");
  EXPECT_EQ(complete({"-C" + store(), "get", "'300:lay"}), "300:layers/\n");
  EXPECT_EQ(complete({at, "get", "latest:params/fr"}),
            "latest:params/frozen\n");
  // Keys, tags, and choices, not steps.
  EXPECT_EQ(complete({at, "history", "params/f"}), "params/frozen\n");
  EXPECT_EQ(complete({at, "history", "lr", "30"}), "300\n");
  EXPECT_EQ(complete({at, "hist", "params/w", "1"}), "100\n");
  EXPECT_EQ(complete({at, "tag", ""}), "warm\n");
  EXPECT_EQ(complete({at, "tag", "warm", "20"}), "200\n");
  EXPECT_EQ(complete({at, "log", "-o", "nd"}), "ndjson\n");
  EXPECT_EQ(complete({at, "stat", "--rev", "4"}), "400\n");
  // Files and numbers are left to the shell.
  EXPECT_EQ(complete({at, "get", "latest:lr", "--out", ""}), "");
  EXPECT_EQ(complete({at, "export", "latest", ""}), "");
  EXPECT_EQ(complete({at, "log", "-n", ""}), "");
  EXPECT_EQ(complete({at, "log", "--sort", ""}), "");
  EXPECT_EQ(complete({"repair", ""}), "");
  EXPECT_EQ(complete({"-C", ""}), "");
  // As the line has them, before the shell looked at them.
  setenv("HOME", store().substr(0, store().rfind('/')).c_str(), 1);
  for (const char* name :
       {"~/store", "$HOME/store", "${HOME}/store", "\"$HOME/store\""}) {
    EXPECT_EQ(complete({"-C", name, "get", "3"}), "300:\n") << name;
  }
  EXPECT_EQ(complete({"-C", "'$HOME/store'", "get", "3"}), "");
}

TEST_F(CommandTest, StatCountsElements) {
  const std::string table = Out({"stat", "params", "params/w"});
  EXPECT_THAT(table, HasSubstr("500: 4 arrays, 4084 elements; "));
  EXPECT_THAT(table, HasSubstr("int4 4"));
  EXPECT_EQ(Out({"stat", "params/*f*", "--rev", "300", "-o", "csv", "--columns",
                 "key,count,nan,inf,zeros", "--no-header"}),
            "params/frozen,1000,0,0,0\nparams/half,8,1,1,1\n");
  const Json json = Json::parse(Out({"stat", "layers", "--json"}));
  EXPECT_EQ(json["schema"], "ckptree.stat/1");
  EXPECT_EQ(json["totals"]["float32"]["elements"], 2);
  EXPECT_EQ(json["arrays"][0]["shape"], Json::array({2}));
  EXPECT_EQ(Ask({"stat", "lr"}).code, 3);
  EXPECT_EQ(Ask({"stat", "nowhere"}).code, 3);
  EXPECT_EQ(Ask({"stat", "--rev", "500:lr"}).code, 2);
}

TEST_F(CommandTest, HistPutsStepsSideBySide) {
  // w of step s is s + 0, s + 1, ...: 3072 values.
  EXPECT_EQ(Out({"hist", "params/w", "100", "500", "--bins", "4", "-o", "csv",
                 "--columns", "count.100,count.500", "--no-header"}),
            "868,468\n868,868\n868,868\n468,868\n");
  // A step that is named twice is one.
  EXPECT_EQ(Out({"hist", "params/w", "500", "100", "latest", "--bins", "1",
                 "-o", "csv", "--columns", "count.500,count.100"}),
            "count.500,count.100\n3072,3072\n");
  setenv("LC_ALL", "C", 1);
  const Result nan = Ask({"hist", "params/w[0]", "300"});
  EXPECT_EQ(nan.code, 0) << nan.err;
  EXPECT_THAT(nan.out, HasSubstr("300: not in a bin: 1 NaN, 0 Inf\n"));
  EXPECT_THAT(nan.out, HasSubstr("###"));
  const Json json = Json::parse(Out({"hist", "params/frozen", "--json"}));
  EXPECT_EQ(json["schema"], "ckptree.hist/1");
  ASSERT_EQ(json["bins"].size(), 1u);  // One value alone.
  EXPECT_EQ(json["bins"][0]["count.500"], 1000);
  EXPECT_EQ(json["steps"][0]["rev"], "500");
  EXPECT_THAT(Out({"hist", "params/nibbles", "--bins", "2"}), HasSubstr("-8"));
  EXPECT_EQ(Ask({"hist", "lr"}).code, 2);
  EXPECT_EQ(Ask({"hist", "params"}).code, 2);
  EXPECT_EQ(Ask({"hist", "params/*"}).code, 2);
  EXPECT_EQ(Ask({"hist", "params/w", "--bins", "0"}).code, 2);
  EXPECT_EQ(Ask({"hist", "params/w", "7"}).code, 3);
  EXPECT_EQ(Ask({"hist", "params/half[3:4]"}).code, 3);
}

TEST_F(CommandTest, DiffShowsValues) {
  const auto diff = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "diff");
    const Result result = Ask(std::move(words));
    EXPECT_EQ(result.code, 1) << result.err;
    return result.out;
  };
  EXPECT_THAT(diff({"400", "500"}),
              ::testing::ContainsRegex("count/\\[3\\] +400 +500 "));
  Json json = Json::parse(diff({"400:count", "500", "--json"}));
  EXPECT_EQ(json["changes"][0]["before_value"], 400);
  EXPECT_EQ(json["changes"][0]["after_value"], 500);
  EXPECT_EQ(json["changes"][0]["before"], "int");
  // Each of 3072 elements by 100; in step 300 one is NaN.
  json = Json::parse(diff({"400:params/w", "500", "--values", "--json"}));
  EXPECT_EQ(json["changes"][0]["max_abs"], 100.0);
  EXPECT_EQ(json["changes"][0]["changed_elements"], 3072);
  EXPECT_NEAR(json["changes"][0]["relative"].get<double>(), 100.0 / 2130, 0.01);
  json = Json::parse(diff({"300:params/w", "400", "--values", "--json"}));
  EXPECT_EQ(json["changes"][0]["changed_elements"], 3072);
  EXPECT_EQ(json["changes"][0]["max_abs"], 100.0);
  EXPECT_THAT(diff({"400:params/w", "500", "--values"}),
              HasSubstr("3072 of 3072"));
}

TEST_F(CommandTest, ExportWritesSafetensors) {
  const std::string file = scratch_ / "model.safetensors";
  EXPECT_EQ(Ask({"export", "500:layers", file}).code, 0);
  const std::string text = ReadFile(file);
  EXPECT_THAT(text, HasSubstr(R"("layers.0.bias":{"dtype":"F32","shape":[2])"));
  // Not over what is there, without a word.
  Result again = Ask({"export", "500:layers", file});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr("exists"), HasSubstr("--force")));
  EXPECT_EQ(Ask({"export", "500:params", file, "-f"}).code, 2);  // int4
  EXPECT_EQ(ReadFile(file), text);
  again = Ask({"export", "500:params", file, "--force", "--skip", "--strip",
               "params", "--rename", "w=weights.0"});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("left out: `params/nibbles` is int4"));
  EXPECT_THAT(ReadFile(file),
              AllOf(HasSubstr("\"frozen\""), HasSubstr("\"weights.0\""),
                    HasSubstr("\"tied\""), Not(HasSubstr("params"))));
  // Two of one name.
  EXPECT_EQ(Ask({"export", "500", file, "-f", "-k", "params/w", "-k",
                 "params/tied", "--rename", "params.w=params.tied"})
                .code,
            2);
  EXPECT_EQ(Ask({"export", "500", file, "-f", "--rename", "x"}).code, 2);
  EXPECT_EQ(Ask({"export", "500", scratch_ / "model.zip"}).code, 2);
}

}  // namespace
}  // namespace ckptree
