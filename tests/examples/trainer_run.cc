// SPDX-License-Identifier: Apache-2.0

#include "tests/examples/trainer_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace char_lm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::uint64_t NumberFromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::int64_t TrainerOutcome::Highest(std::string_view before,
                                     std::string_view after) const {
  std::int64_t highest = -1;
  std::size_t start = 0;
  while (start < output.size()) {
    const std::size_t end = std::min(output.find('\n', start), output.size());
    std::string_view line(output.data() + start, end - start);
    start = end + 1;
    if (!line.starts_with(before)) continue;
    line.remove_prefix(before.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    std::int64_t number = -1;
    const char* line_end = line.data() + line.size();
    const auto parsed = std::from_chars(line.data(), line_end, number);
    if (parsed.ec != std::errc()) continue;
    if (!std::string_view(parsed.ptr, line_end).starts_with(after)) continue;
    highest = std::max(highest, number);
  }
  return highest;
}

TrainerOutcome RunTrainer(const std::vector<std::string>& options,
                          std::optional<TrainerSignal> signal) {
  std::vector<std::string> words = {CHAR_LM_PROGRAM};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const auto start = Clock::now();
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, CHAR_LM_PROGRAM, &actions, nullptr,
                        arguments.data(), environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);

  TrainerOutcome outcome;
  bool signalled = false;
  while (true) {
    timespec left{};
    const timespec* timeout = nullptr;
    if (signal.has_value() && !signalled) {
      const std::int64_t ns = std::max<std::int64_t>(
          0, std::chrono::nanoseconds(signal->after - (Clock::now() - start))
                 .count());
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
      timeout = &left;
    }
    pollfd waiting = {ends[0], POLLIN, 0};
    const int ready = ppoll(&waiting, 1, timeout, nullptr);
    if (ready == 0) {
      kill(child, signal->signal);
      signalled = true;
      continue;
    }
    char buffer[4096];
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    outcome.output.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  outcome.took = Clock::now() - start;
  outcome.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

ckptree::Store OpenForReading(const std::string& directory) {
  ckptree::StoreOptions options;
  options.read_only = true;
  absl::StatusOr<ckptree::Store> store =
      ckptree::Store::Open(directory, std::move(options));
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

void ExpectSound(const ckptree::Store& store) {
  ckptree::VerifyOptions options;
  options.level = ckptree::VerifyOptions::Level::kDeep;
  const auto report = store.Verify(options);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const ckptree::Finding& finding : report->findings) {
    ADD_FAILURE() << store.Info().directory << ": " << finding.what;
  }
}

}  // namespace char_lm
