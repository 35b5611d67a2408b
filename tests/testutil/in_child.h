// SPDX-License-Identifier: Apache-2.0

// A child that is forked off, and what became of it.

#ifndef CKPTREE_TESTS_TESTUTIL_IN_CHILD_H_
#define CKPTREE_TESTS_TESTUTIL_IN_CHILD_H_

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace ckptree::testing {

// The exit status of a child that runs `body`, or the number of the signal that
// ended it, below zero: SIGALRM, after a minute that only a hang takes. -1
// where there was none. `make` forks it.
inline int InChild(const std::function<pid_t()>& make,
                   const std::function<int()>& body) {
  constexpr unsigned kHangs = 60;
  const pid_t child = make();
  if (child == 0) {
    alarm(kHangs);
    _exit(body());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline int InChild(const std::function<int()>& body) {
  return InChild(&fork, body);
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_IN_CHILD_H_
