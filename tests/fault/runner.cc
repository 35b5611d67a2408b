// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/runner.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_format.h"

// In front of the C library's: RocksDB sleeps a second whenever a flush fails,
// and trials fail hundreds of them.
extern "C" int usleep(useconds_t microseconds) {
  const timespec time = {
      .tv_sec = 0,
      .tv_nsec =
          static_cast<long>(std::min<useconds_t>(microseconds, 1000)) * 1000};
  return nanosleep(&time, nullptr);
}

namespace ckptree::testing {

void TrialPipe::Say(std::string_view line) const {
  std::string text(line);
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  text += '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

std::string TrialResult::Text() const {
  std::string text = killed              ? "killed by its fault"
                     : exited            ? absl::StrFormat("exit code %d", code)
                     : signal == SIGALRM ? "hung until its alarm"
                                         : absl::StrFormat("signal %d", signal);
  const std::size_t from = lines.size() > 8 ? lines.size() - 8 : 0;
  for (std::size_t i = from; i < lines.size(); ++i) text += "\n  " + lines[i];
  return text;
}

std::vector<std::string> TrialResult::Said(std::string_view word) const {
  std::vector<std::string> said;
  for (const std::string& line : lines) {
    if (!line.starts_with(word)) continue;
    if (line.size() == word.size()) {
      said.emplace_back();
    } else if (line[word.size()] == ' ') {
      said.push_back(line.substr(word.size() + 1));
    }
  }
  return said;
}

namespace {

struct Child {
  pid_t pid = 0;
  int lines = -1;  // What it says.
};

Child Start(const std::function<void(const TrialPipe&)>& body,
            unsigned seconds) {
  int ends[2];
  if (pipe(ends) != 0) {
    std::perror("pipe");
    std::abort();
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    std::abort();
  }
  if (child == 0) {
    close(ends[0]);
    alarm(seconds);
    // What is thrown must not come back into the parent's test.
    [&]() noexcept { body(TrialPipe(ends[1])); }();
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[1]);
  return {child, ends[0]};
}

TrialResult Finish(const Child& child) {
  TrialResult result;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(child.lines, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(child.lines);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos;
       at = end + 1) {
    result.lines.push_back(text.substr(at, end - at));
  }
  result.exited = WIFEXITED(status);
  if (result.exited) result.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.killed = result.signal == SIGKILL;
  return result;
}

}  // namespace

TrialResult RunChild(const std::function<void(const TrialPipe&)>& body,
                     unsigned seconds) {
  return Finish(Start(body, seconds));
}

std::vector<TrialResult> RunChildren(
    int count, const std::function<void(int child, const TrialPipe&)>& body,
    unsigned seconds) {
  std::vector<Child> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(
        Start([&body, i](const TrialPipe& pipe) { body(i, pipe); }, seconds));
  }
  std::vector<TrialResult> results;
  for (const Child& child : children) results.push_back(Finish(child));
  return results;
}

}  // namespace ckptree::testing
