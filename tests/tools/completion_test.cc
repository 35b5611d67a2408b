// SPDX-License-Identifier: Apache-2.0

// Completion in a shell: names of a store that a shell would run, each put into
// the line by Tab and handed to the command by Enter.

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::string_view kPrompt = "ready> ";

class CompletionTest : public CommandRunner {
 protected:
  void SetUp() override {
    here_ = scratch_ / "here";
    fs::create_directory(here_);
    ASSERT_OK_AND_ASSIGN(
        Store store, Store::Open(scratch_ / "s", {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    const std::vector<std::string> keys = {
        "--force", "p/\"$(touch ran)\"", "p/\"`touch ran`\"",
        "p/\"it's $(touch ran)\"", "p/\"ha!!\""};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      builder.PutInt(keys[i], static_cast<std::int64_t>(7000 + i));
    }
    for (const char* metric : {"$(touch ran)", "`touch ran`", "b;touch ran",
                               "ha!!", "two\nlines", "clear\x1b[2J"}) {
      builder.SetMetric(metric, 1.0);
    }
    SaveHandle save = std::move(builder).Commit();
    ASSERT_OK(save.WaitCommitted(absl::Minutes(2)));
    ASSERT_OK(store.Close());
  }

  // What a terminal shows where `keys` are typed into bash, line by line.
  std::string Typed(const std::vector<std::string>& lines) {
    const std::string folder = fs::path(CKPTREE_BINARY).parent_path();
    int terminal = -1;
    struct winsize size {};
    size.ws_row = 50, size.ws_col = 1000;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      const std::string path = folder + ":" + std::getenv("PATH");
      const std::string store = scratch_ / "s";
      setenv("PATH", path.c_str(), 1);
      setenv("CKPTREE_STORE", store.c_str(), 1);
      setenv("PS1", std::string(kPrompt).c_str(), 1);
      setenv("PS2", std::string(kPrompt).c_str(), 1);
      setenv("TERM", "dumb", 1);
      setenv("HISTFILE", "/dev/null", 1);
      if (chdir(here_.c_str()) != 0) _exit(98);
      execl("/bin/bash", "bash", "--norc", "--noprofile", "-i", nullptr);
      _exit(99);
    }
    EXPECT_GT(child, 0);
    std::string text;
    // The next line is typed when bash asks for it.
    const auto until_prompt = [&] {
      char buffer[4096];
      while (!text.ends_with(kPrompt)) {
        const ssize_t got = read(terminal, buffer, sizeof buffer);
        if (got <= 0) return;
        text.append(buffer, static_cast<std::size_t>(got));
      }
      text += '\n';
    };
    until_prompt();
    std::string all = "source <(ckptree completion bash)\n";
    for (const std::string& line : lines) {
      EXPECT_EQ(write(terminal, all.data(), all.size()),
                static_cast<ssize_t>(all.size()));
      until_prompt();
      all = line + "\n";
    }
    EXPECT_EQ(write(terminal, all.data(), all.size()),
              static_cast<ssize_t>(all.size()));
    until_prompt();
    EXPECT_EQ(write(terminal, "exit\n", 5), 5);
    until_prompt();
    close(terminal);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return text;
  }

  bool Ran() const { return !fs::is_empty(here_); }
};

TEST_F(CompletionTest, KeysInDoubleQuotesAreNotRun) {
  const std::string text = Typed({"ckptree get \"latest:p/\\\"\\$\t\"",
                                  "ckptree get \"latest:p/\\\"\\`\t\"",
                                  "ckptree get \"latest:p/\\\"i\t\""});
  EXPECT_FALSE(Ran()) << text;
  // They were put there, and are what the command was given.
  for (const char* value : {"7001", "7002", "7003"}) {
    EXPECT_THAT(text, HasSubstr(value));
  }
}

TEST_F(CompletionTest, KeysInSingleQuotesAndInNoneAreNotRun) {
  const std::string text =
      Typed({"ckptree get 'latest:p/\"$\t", "ckptree get 'latest:p/\"`\t",
             "ckptree get latest:p/\\\"\\$\t", "ckptree get latest:p/\\\"\\`\t",
             "ckptree get latest:p/\\\"i\t",
             // What ends the quotes is not offered between them.
             "ckptree get 'latest:p/\"it\t\"'"});
  EXPECT_FALSE(Ran()) << text;
  for (const char* value : {"7001", "7002", "7003"}) {
    EXPECT_THAT(text, HasSubstr(value));
  }
  EXPECT_THAT(text, HasSubstr("no key `p/\"it\"`"));
}

TEST_F(CompletionTest, MetricsAreNotRun) {
  const std::string text =
      Typed({"ckptree show \"best:\\$\tax\"", "ckptree show \"best:\\`\tax\"",
             "ckptree show 'best:$\tax'", "ckptree show best:\\$\tax",
             "ckptree show best:b\tax"});
  EXPECT_FALSE(Ran()) << text;
  // Each of the five lines showed the step.
  const std::vector<std::string> parts = absl::StrSplit(text, "item p ");
  EXPECT_THAT(parts, SizeIs(6));
}

TEST_F(CompletionTest, NothingIsPutThereOfTheHistory) {
  // What stands in quotes there would stand behind those of the key.
  const std::string text =
      Typed({"echo \"; touch ran; \"", "ckptree get \"latest:p/\\\"h\t\"",
             "echo \"; touch ran; \"", "ckptree get latest:p/\\\"h\t"});
  EXPECT_FALSE(Ran()) << text;
  EXPECT_THAT(text, HasSubstr("p/\\\"ha\\!\\!\\\""));
  EXPECT_THAT(text, HasSubstr("7004"));
}

TEST_F(CompletionTest, WhatIsNotShownAsItIsIsNotOffered) {
  const auto offered = [&](const std::string& verb, const std::string& word) {
    return Run({"__complete", "--", verb, "-C", scratch_ / "s", word}).out;
  };
  const std::string metrics = offered("show", "best:");
  EXPECT_THAT(metrics, HasSubstr("best:$(touch ran):max:\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("two")));
  EXPECT_THAT(metrics, Not(HasSubstr("clear")));
  // Nor a name that is no key, where it stands, but a flag.
  EXPECT_EQ(offered("stat", ""), "p/\n");
  EXPECT_EQ(offered("get", "latest:--"), "latest:--force\n");
}

TEST_F(CompletionTest, ZshQuotesEachCandidate) {
  const std::string script = Run({"completion", "zsh"}).out;
  EXPECT_THAT(script, HasSubstr("compadd -S"));
  EXPECT_THAT(script, Not(HasSubstr("-Q")));
}

}  // namespace
}  // namespace ckptree
