// SPDX-License-Identifier: Apache-2.0

// The program on a terminal: long output goes through the pager. And its
// manual pages.

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PagerTest : public CommandRunner {
 protected:
  // What `words` print on a terminal of `rows` lines.
  std::string OnTerminal(unsigned short rows, std::vector<std::string> words) {
    words.insert(words.begin(), CKPTREE_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    struct winsize size {};
    size.ws_row = rows;
    size.ws_col = 100;
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      execv(argv[0], argv.data());
      _exit(99);
    }
    EXPECT_GT(child, 0);
    EXPECT_EQ(write(terminal, typed_.data(), typed_.size()),
              static_cast<ssize_t>(typed_.size()));
    std::string text;
    char buffer[4096];
    for (;;) {
      const ssize_t got = read(terminal, buffer, sizeof buffer);
      if (got <= 0) break;  // Its last writer is gone.
      text.append(buffer, static_cast<std::size_t>(got));
    }
    close(terminal);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return text;
  }

  std::string typed_;
  int code_ = -1;
};

TEST_F(PagerTest, OnlyWhatIsLonger) {
  setenv("CKPTREE_PAGER", "sed 's/^/paged: /'", 1);
  EXPECT_THAT(OnTerminal(10, {"help"}), StartsWith("paged: ckptree"));
  EXPECT_EQ(code_, 0);
  EXPECT_THAT(OnTerminal(200, {"help"}), Not(HasSubstr("paged")));
  EXPECT_THAT(OnTerminal(10, {"help", "--no-pager"}), Not(HasSubstr("paged")));
  EXPECT_THAT(OnTerminal(10, {"--no-pager", "help"}), Not(HasSubstr("paged")));
  // Not off a terminal.
  EXPECT_THAT(Run({"help"}).out, Not(HasSubstr("paged")));
  // One that is left early.
  setenv("CKPTREE_PAGER", "head -n 1", 1);
  EXPECT_THAT(OnTerminal(10, {"help"}), StartsWith("ckptree"));
  EXPECT_EQ(code_, 0);
  setenv("CKPTREE_PAGER", "", 1);
  EXPECT_THAT(OnTerminal(10, {"help"}), HasSubstr("completion"));
  unsetenv("CKPTREE_PAGER");
  setenv("PAGER", "sed 's/^/also: /'", 1);
  EXPECT_THAT(OnTerminal(10, {"help"}), StartsWith("also: "));
  unsetenv("PAGER");
}

TEST_F(PagerTest, TheExitCodeStays) {
  const std::string store = scratch_ / "store";
  MakeStore(store);
  setenv("CKPTREE_PAGER", "sed 's/^/paged: /'", 1);
  EXPECT_THAT(OnTerminal(3, {"-C", store, "diff", "300", "400"}),
              StartsWith("paged: "));
  EXPECT_EQ(code_, 1);
  unsetenv("CKPTREE_PAGER");
}

TEST_F(PagerTest, RmNamesWhatItAsksFor) {
  const std::string store = scratch_ / "store";
  MakeStore(store);
  typed_ = "n\n";
  EXPECT_THAT(OnTerminal(50, {"-C", store, "rm", "latest"}),
              HasSubstr("remove step 500? [y/N]"));
  EXPECT_EQ(code_, 1);
  EXPECT_THAT(OnTerminal(50, {"-C", store, "rm", "300..latest"}),
              HasSubstr("remove the steps 300, 400 and 500? [y/N]"));
}

TEST_F(PagerTest, ManualPages) {
  const std::string page = Run({"help", "--man", "log"}).out;
  EXPECT_THAT(page, StartsWith(".TH CKPTREE-LOG 1"));
  EXPECT_THAT(page, HasSubstr("\\-\\-follow"));
  EXPECT_THAT(Run({"help", "--man"}).out, HasSubstr(".B log"));
  EXPECT_EQ(Run({"help", "--man", "lgo"}).code, 2);
  EXPECT_EQ(Run({"help", "--man-pages", scratch_ / "none"}).code, 2);
  EXPECT_EQ(Run({"help", "--man-pages", scratch_ / ""}).code, 0);
  EXPECT_EQ(ReadFile(scratch_ / "ckptree-log.1"), page);
  // As troff reads it: no line of text is a request.
  const std::string all = Run({"help", "--man", "find"}).out;
  for (std::size_t at = 0; at < all.size(); at = all.find('\n', at) + 1) {
    if (all[at] != '.') continue;
    const std::string line = all.substr(at, all.find('\n', at) - at);
    EXPECT_TRUE(line.starts_with(".TH ") || line.starts_with(".SH ") ||
                line.starts_with(".TP") || line.starts_with(".B ") ||
                line == ".nf" || line == ".fi")
        << line;
    if (all.find('\n', at) == std::string::npos) break;
  }
}

TEST_F(PagerTest, WordsOfGit) {
  EXPECT_EQ(Run({"help", "cat-file"}).out, Run({"help", "get"}).out);
  const std::string store = scratch_ / "store";
  MakeStore(store);
  EXPECT_EQ(Run({"-C", store, "branch"}).out, Run({"-C", store, "fork"}).out);
  EXPECT_EQ(Run({"-C", store, "cat-file", "100:lr"}).out, "0.001\n");
}

}  // namespace
}  // namespace ckptree
