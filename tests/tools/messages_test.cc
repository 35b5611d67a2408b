// SPDX-License-Identifier: Apache-2.0

// Errors that say what is wrong with what was asked, and what to write.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MessagesTest : public CommandRunner {
 protected:
  void SetUp() override { MakeStore(store_); }
  Result Ask(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", store_});
    return Run(std::move(words));
  }
  const std::string store_ = scratch_ / "store";
};

TEST_F(MessagesTest, AnAddressThatLacksASlash) {
  for (const char* address : {"s3:/x", "rados:/x", "gs:/x"}) {
    const std::string scheme(address, std::string(address).find(':'));
    const Result result = Run({"-C", address, "log"});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(scheme + "://x"),
                                  Not(HasSubstr("run's own directory"))));
  }
}

TEST_F(MessagesTest, OneStepIsNoSteps) {
  ASSERT_EQ(Ask({"fork", "500", "--branch", "lr"}).code, 0);
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
  StepBuilder builder = store.Begin(4, {.branch = "lr"});
  builder.PutInt("n", 1);
  ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  EXPECT_THAT(store.Resolve(AtStep(5, "lr")),
              testing::StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr("branch 'lr' has one step, 4")));
  ASSERT_OK(store.Close());
}

// One of them would be ignored.
TEST_F(MessagesTest, FlagsThatContradictEachOther) {
  ASSERT_EQ(Ask({"tag", "good", "500"}).code, 0);
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"log", "--json", "-o", "csv"}, "two formats"},
      {{"get", "500:params/w", "-o", "npy", "--json"}, "two formats"},
      {{"tag", "good", "-d", "--move"}, "`--delete` takes a tag away"},
      {{"rm", "100", "-y", "--timeout", "1", "--wait", "2"}, "are one flag"},
      {{"log", "--sort", ""}, "names no column"},
      {{"log", "--sort", "-"}, "names no column"},
  };
  for (const auto& [words, text] : wrong) {
    const Result result = Ask(words);
    EXPECT_EQ(result.code, 2) << words[0] << result.out;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_THAT(Ask({"log", "--json", "-o", "json"}).out, HasSubstr("500"));
  EXPECT_THAT(Ask({"log"}).out, AllOf(HasSubstr("good"), HasSubstr("100")));
}

TEST_F(MessagesTest, BestNeedsMinOrMax) {
  for (const char* rev : {"best:loss:mid", "best:loss:", "best:loss:mid:lr"}) {
    const Result result = Ask({"get", rev});
    EXPECT_EQ(result.code, 2) << rev;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("min or max"), HasSubstr("`best:loss:min`")))
        << rev;
  }
  EXPECT_EQ(Ask({"show", "best:loss:min"}).code, 0);
}

TEST_F(MessagesTest, ACopyIsGivenNoAdviceOfATrainer) {
  const std::string other = scratch_ / "other";
  ASSERT_EQ(Run({"copy", store_, other, "500"}).code, 0);
  ASSERT_EQ(Run({"-C", other, "policy", "--set", "latest(1)", "--yes"}).code,
            0);
  const Result result = Run({"copy", store_, other, "100"});
  EXPECT_NE(result.code, 0);
  // Where the copy asks first how the save ended, it is not logged.
  EXPECT_THAT(result.out + result.err,
              AllOf(HasSubstr("latest(1)"), HasSubstr("ckptree -C DST policy"),
                    Not(HasSubstr("delete_after"))));
}

TEST_F(MessagesTest, ColumnsAreNamedAndMayHaveCommas) {
  for (const char* none : {"", ",", "\"\""}) {
    const Result result = Ask({"log", absl::StrFormat("--columns=%s", none)});
    EXPECT_EQ(result.code, 2) << none;
    EXPECT_THAT(result.err, HasSubstr("--columns")) << none;
  }
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
    StepBuilder builder = store.Begin(600);
    builder.PutInt("n", 1);
    builder.SetMetric("f1,macro", 0.5);
    builder.SetMetric("a\"b", 2);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  const auto csv = [&](const std::string& columns) {
    return Ask({"log", "600", "-o", "csv", "--columns", columns}).out;
  };
  EXPECT_EQ(csv("step,\"f1,macro\""), "step,\"f1,macro\"\n600,0.5\n");
  EXPECT_EQ(csv("\"a\"\"b\",step"), "\"a\"\"b\",step\n2.0,600\n");
  EXPECT_EQ(csv("a\"b"), "\"a\"\"b\"\n2.0\n");
  EXPECT_EQ(csv("step,,leaves"), "step,leaves\n600,1\n");
}

// What bash is given, it hands on as the key is.
TEST_F(MessagesTest, BashKeepsTheQuotesOfKeys) {
  const std::string odd = scratch_ / "odd";
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(odd, {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    Path path;
    path.Key("params").Key("layer one").Key("w");
    builder.PutInt(path, 7);
    builder.PutInt("params/plain", 8);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  const std::string script = scratch_ / "complete.sh";
  std::ofstream(script) << R"(
PATH="$(dirname "$1"):$PATH"
source <(ckptree completion bash)
complete_line() {
  COMP_WORDBREAKS=$' \t\n"\'><=;|&(:' COMP_LINE="$1" COMP_POINT=${#1}
  _ckptree 2> /dev/null
  printf '%s\n' "${COMPREPLY[@]}"
}
get="ckptree -C $2 get "
complete_line "${get}latest:par"
complete_line "${get}latest:params/"
complete_line "${get}latest:"'params/\"layer\ one\"/'
complete_line "${get}'latest:params/\"la"
complete_line "${get}latest:params/pl"
complete_line "ckptree -C '$2' history params/pl"
eval "ckptree -C '$2' get latest:$(complete_line "${get}latest:"'params/\"l')w"
)";
  const std::string out = scratch_ / "out";
  ASSERT_EQ(std::system(absl::StrFormat("bash '%s' '%s' '%s' > '%s'", script,
                                        CKPTREE_BINARY, odd, out)
                            .c_str()),
            0);
  EXPECT_EQ(ReadFile(out),
            "params/\n"
            "params/\\\"layer\\ one\\\"/\n"
            "params/plain\n"
            "params/\\\"layer\\ one\\\"/w\n"
            "latest:params/\"layer one\"/\n"
            "params/plain\n"
            "params/plain\n"
            "7\n");
}

// The reader goes, and no step comes: that is seen all the same.
TEST_F(MessagesTest, FollowingEndsWhenItsReaderGoes) {
  const std::string out = scratch_ / "out";
  const std::string command = absl::StrFormat(
      "{ timeout 60 %s -C '%s' log -f -n 3; echo $? > '%s.code'; } | "
      "head -1 > '%s'",
      CKPTREE_BINARY, store_, out, out);
  ASSERT_EQ(std::system(command.c_str()), 0);
  // Not 124, by which `timeout` ends it; that of SIGPIPE, as others end.
  EXPECT_EQ(ReadFile(out + ".code"), "141\n");
  EXPECT_THAT(ReadFile(out), HasSubstr("STEP"));
}

}  // namespace
}  // namespace ckptree
