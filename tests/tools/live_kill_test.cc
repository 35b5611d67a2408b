// SPDX-License-Identifier: Apache-2.0

// A trainer is killed while a command asks it for something. Whatever the
// command says of it is held against the store, read by other processes.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/scale.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;

// This process opens no store: its children could not write then.
class LiveKillTest : public CommandRunner {
 protected:
  static constexpr int kKinds = 6;  // Of what is asked for.

  // Where it ends by itself.
  enum class End { kNever, kDone };

  // A trainer; returns once it has the store open. Of what `turn` asks for, see
  // Words(): where there is to be something to free it removes a step, and
  // frees nothing by itself.
  pid_t Train(End end, int turn) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      StoreOptions options;
      options.create_if_missing = true;
      options.collect = !IsCollection(turn);
      if (end == End::kDone) {
        // Between what is done and its answer.
        options.log = [](LogSeverity, std::string_view where,
                         std::string_view text) {
          if (where == "requests" && text.ends_with(": done")) {
            kill(getpid(), SIGKILL);
          }
        };
      }
      absl::StatusOr<Store> store = Store::Open(own_, options);
      if (!store.ok()) _exit(3);
      const auto steps = store->Steps();
      std::int64_t step = steps->empty() ? 0 : steps->back().step;
      for (int i = 0; i < 2; ++i) {
        ++step;
        if (!store->Begin(step)
                 .PutInt("n", step)
                 .Commit()
                 .WaitCommitted()
                 .ok()) {
          _exit(4);
        }
      }
      if (IsCollection(turn) && !store->Delete(AtStep(step - 1)).ok()) {
        _exit(6);
      }
      if (write(ready[1], "r", 1) != 1) _exit(5);
      while (true) pause();
    }
    char byte = 0;
    close(ready[1]);
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
  }

  Result Do(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_});
    return Run(std::move(words));
  }

  // Sees a file of that kind; false where the command ended before.
  bool Await(std::string_view prefix, pid_t command) {
    while (true) {
      std::error_code error;
      for (std::filesystem::directory_iterator it(own_ + "/requests", error),
           end;
           !error && it != end; it.increment(error)) {
        if (it->path().filename().string().starts_with(prefix)) return true;
      }
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(command), &info,
                 WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == command) {
        return false;
      }
    }
  }

  static void Kill(pid_t trainer) {
    kill(trainer, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(trainer, &status, 0), trainer);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
  }

  static bool IsCollection(int turn) { return turn % kKinds == 5; }

  // What step `step` is asked for in turn `turn`, and whether it is so.
  std::vector<std::string> Words(int turn, const std::string& step) {
    const std::string name = absl::StrFormat("n%d", turn);
    switch (turn % kKinds) {
      case 0:
        return {"tag", name, step};
      case 1:
        return {"pin", step};
      case 2:
        return {"fork", step, "--branch", name};
      case 3:
        return {"policy", "--set", absl::StrFormat("latest(%d)", 1000 + turn)};
      case 4:
        return {"rm", step, "-y"};
      default:
        return {"gc"};
    }
  }
  bool IsDone(int turn, const std::string& step) {
    const std::string name = absl::StrFormat("n%d", turn);
    const auto lines = [&](std::vector<std::string> words) {
      words.insert(words.end(), {"-o", "tsv", "--no-header", "--columns"});
      const std::string column = words[0] == "tag"    ? "name"
                                 : words[0] == "fork" ? "branch"
                                                      : "step,pinned";
      words.push_back(column);
      const Result result = Do(words);
      EXPECT_EQ(result.code, 0) << result.err;
      return "\n" + result.out;
    };
    switch (turn % kKinds) {
      case 0:
        return lines({"tag"}).find("\n" + name + "\n") != std::string::npos;
      case 1:
        return lines({"log"}).find("\n" + step + "\ttrue\n") !=
               std::string::npos;
      case 2:
        return lines({"fork"}).find("\n" + name + "\n") != std::string::npos;
      case 3:
        return Do({"policy"})
                   .out.find(absl::StrFormat("latest(%d)", 1000 + turn)) !=
               std::string::npos;
      case 4:
        return Do({"show", step}).code == 3;
      default:
        return Do({"gc", "--dry-run"}).out.find("there is nothing to free") !=
               std::string::npos;
    }
  }

  const std::string own_ = scratch_ / "own";
};

TEST_F(LiveKillTest, WhatIsSaidIsSo) {
  constexpr std::string_view kMoments[] = {"new-", "ask-", "taken-", "reply-",
                                           "answer-"};
  const int turns = testing::Scaled(200);
  std::map<std::string, int> seen;
  for (int turn = 0; turn < turns; ++turn) {
    const pid_t trainer = Train(End::kNever, turn);
    // Of the two that this trainer saved, the older one.
    const Result latest =
        Do({"log", "-n", "2", "-o", "tsv", "--no-header", "--columns", "step"});
    ASSERT_EQ(latest.code, 0) << latest.err;
    const std::size_t line = latest.out.find('\n') + 1;
    const std::string step =
        latest.out.substr(line, latest.out.find('\n', line) - line);
    std::vector<std::string> words = Words(turn, step);
    EXPECT_FALSE(IsDone(turn, step)) << turn;
    words.insert(words.begin(), {"-C", own_});
    const Running command = Start(words);
    const auto& moment =
        kMoments[static_cast<std::size_t>(turn / kKinds) % std::size(kMoments)];
    if (Await(moment, command.pid)) ++seen[std::string(moment)];
    Kill(trainer);
    const Result result = Finish(command);
    SCOPED_TRACE(absl::StrFormat("turn %d, at %s: %s %s", turn, moment,
                                 words[2], result.err));
    const bool done = IsDone(turn, step);
    if (result.code == 0) {
      EXPECT_TRUE(done);
    } else if (result.code == 4) {
      EXPECT_FALSE(done);
    } else {
      EXPECT_EQ(result.code, 6);
    }
    EXPECT_TRUE(std::filesystem::is_empty(own_ + "/requests"));
  }
  // A moment that is never met tests nothing.
  if (testing::WholeTrial()) {
    EXPECT_GT(seen["ask-"], 0);
    EXPECT_GT(seen["taken-"] + seen["answer-"], 0);
  }
  EXPECT_EQ(Do({"verify"}).code, 0);
}

TEST_F(LiveKillTest, BetweenDoneAndAnswered) {
  for (int turn = 0; turn < 2 * kKinds; ++turn) {
    const pid_t trainer = Train(End::kDone, turn);
    const Result latest =
        Do({"log", "-n", "2", "-o", "tsv", "--no-header", "--columns", "step"});
    const std::size_t line = latest.out.find('\n') + 1;
    const std::string step =
        latest.out.substr(line, latest.out.find('\n', line) - line);
    const Result result = Do(Words(turn, step));
    int status = 0;
    ASSERT_EQ(waitpid(trainer, &status, 0), trainer);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_EQ(result.code, 0) << turn << result.err;
    // What is freed shows nowhere, so it is freed once more.
    EXPECT_THAT(result.err,
                HasSubstr(IsCollection(turn)
                              ? "ended before it was done; it is done here"
                              : "ended in the middle; it is done"));
    EXPECT_TRUE(IsDone(turn, step)) << turn;
  }
}

}  // namespace
}  // namespace ckptree
