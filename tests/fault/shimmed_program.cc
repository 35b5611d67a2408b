// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/shimmed_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/fault/call_shim.h"

extern char** environ;

namespace ckptree::testing {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file that holds zeros, mapped.
class CountsFile {
 public:
  explicit CountsFile(const std::string& path) {
    const int fd =
        open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(ShimCounts)) != 0) Fail(path);
    void* const mapped = mmap(nullptr, sizeof(ShimCounts),
                              PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) Fail(path);
    close(fd);
    counts_ = new (mapped) ShimCounts{};
  }
  ~CountsFile() { munmap(counts_, sizeof(ShimCounts)); }
  CountsFile(const CountsFile&) = delete;
  CountsFile& operator=(const CountsFile&) = delete;

  const ShimCounts& counts() const { return *counts_; }

 private:
  [[noreturn]] static void Fail(const std::string& path) {
    std::perror(path.c_str());
    std::abort();
  }

  ShimCounts* counts_ = nullptr;
};

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string ShimPlan::Text() const {
  return absl::StrFormat("%s (%d) at call %d", does, value, at);
}

std::string ShimResult::Text() const {
  return absl::StrFormat("%s %d, at %s; out: %s; err: %s",
                         signal != 0 ? "signal" : "exit code",
                         signal != 0 ? signal : code, fired_at, out, err);
}

ShimResult RunShimmed(std::vector<std::string> words, const ShimPlan& plan,
                      const std::string& scratch) {
  const std::string out = scratch + "/out";
  const std::string err = scratch + "/err";
  const CountsFile file(scratch + "/counts");
  std::vector<std::string> environment = {
      "LD_PRELOAD=" CKPTREE_SHIM,
      "ASAN_OPTIONS=verify_asan_link_order=0",
      absl::StrCat("CKPTREE_SHIM_COUNTS=", scratch, "/counts"),
      absl::StrCat("CKPTREE_SHIM_UNDER=", plan.under),
      absl::StrCat("CKPTREE_SHIM_DOES=", plan.does),
      absl::StrCat("CKPTREE_SHIM_AT=", plan.at),
      absl::StrCat("CKPTREE_SHIM_VALUE=", plan.value)};
  if (!plan.only.empty()) {
    environment.push_back(absl::StrCat("CKPTREE_SHIM_ONLY=", plan.only));
  }
  if (plan.reads) environment.emplace_back("CKPTREE_SHIM_READS=1");
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "LD_PRELOAD=") &&
        !absl::StartsWith(*variable, "ASAN_OPTIONS=")) {
      environment.emplace_back(*variable);
    }
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_CREAT | O_TRUNC | O_WRONLY;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
  pid_t pid = 0;
  ShimResult result;
  const int spawned =
      posix_spawn(&pid, words[0].c_str(), &actions, nullptr,
                  Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) {
    result.err = words[0] + " cannot be run";
    return result;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + result.signal;
  result.out = Contents(out);
  result.err = Contents(err);
  result.calls = file.counts().calls;
  result.fired = file.counts().fired;
  result.fired_at = file.counts().fired_at;
  return result;
}

}  // namespace ckptree::testing
