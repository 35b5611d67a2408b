// SPDX-License-Identifier: Apache-2.0

// The lock of the interpreter (the GIL), given away and taken.

#ifndef CKPTREE_PYTHON_SRC_INTERPRETER_LOCK_H_
#define CKPTREE_PYTHON_SRC_INTERPRETER_LOCK_H_

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace ckptree::python {

// Of a thread that Python ended.
[[noreturn]] inline void StayUntilTheEnd() {
  for (;;) pause();
}

// Calls `take`, which waits for the lock. While the interpreter ends, Python
// before 3.14 ends a thread that waits for it (a daemon's) by pthread_exit(),
// which unwinds through frames of C++ and aborts the process at the first that
// is noexcept. Such a thread stays here instead, until the process has ended;
// Python 3.14 does the same.
template <typename Take>
auto TakeLock(Take take) noexcept {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    StayUntilTheEnd();
  }
}

// Without the lock while it lives. Needs it when it is made.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    TakeLock([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// With the lock while it lives, on whatever thread.
class Locked {
 public:
  Locked() : state_(TakeLock([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_INTERPRETER_LOCK_H_
