// SPDX-License-Identifier: Apache-2.0

#include "bench/command_alerts.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/state.h"

namespace ckptree::bench {
namespace {

// A `log -f` whose alerts run a command that says so.
class Follower {
 public:
  Follower(const std::string& program, const std::string& store,
           const std::vector<std::string>& watch) {
    std::vector<std::string> words = {program, "-C",     store,     "log",
                                      "-f",    "--json", "--limit", "1"};
    words.insert(words.end(), watch.begin(), watch.end());
    words.insert(words.end(), {"--exec", "echo ran"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int rows[2], said[2];
    if (pipe2(rows, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0) {
      Fail("no pipe");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, rows[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, said[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                     O_RDONLY, 0);
    const int started = posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                    argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(rows[1]);
    close(said[1]);
    if (started != 0) Fail("the command cannot be started");
    rows_ = rows[0];
    said_ = said[0];
    std::string row;
    ReadLine(rows_, &row);  // It has looked once.
  }
  ~Follower() {
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    close(rows_);
    close(said_);
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Returns once the command of an alert has run.
  void AwaitCommand() {
    std::string line;
    while (line != "ran") ReadLine(said_, &line);
  }

 private:
  static void ReadLine(int fd, std::string* line) {
    line->clear();
    char byte = 0;
    while (read(fd, &byte, 1) == 1) {
      if (byte == '\n') return;
      line->push_back(byte);
    }
    Fail("`log -f` ended: " + *line);
  }

  pid_t pid_ = 0;
  int rows_ = -1;
  int said_ = -1;
};

// A store of one small step after the other.
class Run {
 public:
  explicit Run(const std::string& path) : store_(FreshStore(path)) { Save(); }

  void Save() {
    StepBuilder builder = store_.Begin(++step_);
    builder.PutInt("n", step_).SetMetric("loss", 20);
    Check(std::move(builder).Commit().WaitCommitted());
  }

  // The same at any moment between two looks of the follower.
  void SaveSomeTime() {
    constexpr int kBetweenLooks = 500;  // ms.
    std::this_thread::sleep_for(
        std::chrono::milliseconds(random_() % kBetweenLooks));
    Save();
  }

 private:
  Store store_;
  std::int64_t step_ = 0;
  std::mt19937 random_{7};
};

}  // namespace

void MeasureAlerts(const Settings& settings, const std::string& program) {
  const std::string path = settings.directory + "/alerts";
  std::filesystem::create_directories(settings.directory);
  const auto measure = [&](const std::string& what,
                           const std::vector<std::string>& watch, int turns,
                           double less) {
    Run run(path);
    Follower follower(program, path, watch);
    std::vector<double> times;
    for (int i = 0; i < turns; ++i) {
      run.SaveSomeTime();
      const Stopwatch watch_of_commit;
      follower.AwaitCommand();
      times.push_back(watch_of_commit.Seconds() * 1e3 - less);
    }
    Print("command", what, times, "ms");
  };
  measure("log -f --alert --exec, from a commit to the command it runs",
          {"--alert", "loss>10"}, settings.quick ? 5 : 21, 0);
  measure("log -f --stall 1s --exec, from 1 s after a commit to the command",
          {"--stall", "1s"}, settings.quick ? 3 : 11, 1000);
  std::filesystem::remove_all(path);
}

}  // namespace ckptree::bench
