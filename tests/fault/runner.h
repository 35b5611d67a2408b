// SPDX-License-Identifier: Apache-2.0

// Runs one half of a trial in a child that may be killed.

#ifndef CKPTREE_TESTS_FAULT_RUNNER_H_
#define CKPTREE_TESTS_FAULT_RUNNER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ckptree::testing {

// The child's end: each line is with the parent before Say returns.
class TrialPipe {
 public:
  explicit TrialPipe(int fd) : fd_(fd) {}
  void Say(std::string_view line) const;

 private:
  int fd_;
};

struct TrialResult {
  std::vector<std::string> lines;  // Whole ones, in order.
  bool killed = false;             // By SIGKILL: a fault did it.
  bool exited = false;             // By itself, with `code`.
  int code = 0;
  int signal = 0;

  // True for a child that ended in no way that was planned: it aborted,
  // crashed, or hung until its alarm.
  bool broken() const { return !killed && !(exited && code == 0); }
  std::string Text() const;  // How it ended, and its last lines.
  // Lines that begin with `word` and a space or are it, without it.
  std::vector<std::string> Said(std::string_view word) const;
};

// Forks; the child runs `body` and ends without destructors of the parent's.
// A child that takes longer than `seconds` is ended by SIGALRM.
//
// REQUIRES: the calling process has one thread: it never opens a store.
TrialResult RunChild(const std::function<void(const TrialPipe&)>& body,
                     unsigned seconds = 60);

// The same of `count` children at once; `body` learns which it is, from 0 on.
std::vector<TrialResult> RunChildren(
    int count, const std::function<void(int child, const TrialPipe&)>& body,
    unsigned seconds = 60);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_RUNNER_H_
