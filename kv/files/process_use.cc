// SPDX-License-Identifier: Apache-2.0

#include "kv/process_use.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>
#include <system_error>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/process_mark.h"

namespace ckptree::kv {
namespace {

// The process that opened a store first; null: none did.
std::atomic<const ProcessMark*> first_use{nullptr};

void EndForkedChild(int status, void*) {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  _exit(status);
}

// Handlers run last in, first out: this one before all that was registered so
// far. RocksDB makes some of its statics when it first needs them.
void EndBeforeDestructors() { on_exit(&EndForkedChild, nullptr); }

// Before a fork. The first thread of a process that stands behind another one
// at an absl::Mutex measures the clock's rate, for milliseconds, and the others
// wait for that. A child forked at that moment would wait for ever: for a
// thread that it does not have. So this one stands behind another before the
// first fork.
void HaveTheClockMeasured() {
  static std::atomic<bool> measured{false};
  if (measured.load()) return;
  absl::Mutex mutex;
  bool waits = false;
  bool done = false;
  std::thread first;
  try {
    first = std::thread([&] {
      const absl::MutexLock lock(&mutex);
      waits = true;
      mutex.Await(absl::Condition(&done));
    });
  } catch (const std::system_error&) {
    return;  // No room for a thread: the next fork tries again.
  }
  mutex.LockWhen(absl::Condition(&waits));
  bool never = false;
  mutex.AwaitWithTimeout(absl::Condition(&never), absl::ZeroDuration());
  done = true;
  mutex.Unlock();
  first.join();
  measured.store(true);
}

const ProcessMark* BeginUse() {
  first_use.store(new ProcessMark);  // Outlives every static.
  pthread_atfork(&HaveTheClockMeasured, nullptr, &EndBeforeDestructors);
  return first_use.load();
}

void HoldStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest that is free. Not closed on exec: nor are the real ones.
    const int held = open("/dev/null", O_RDWR);
    if (held > 2) close(held);  // Another thread was faster.
  }
}

}  // namespace

void NoteUse() {
  static const ProcessMark* const first = BeginUse();
  if (!first->Holds()) EndBeforeDestructors();
  HoldStandardDescriptors();
}

absl::Status CheckMayWrite(const std::string& directory) {
  const ProcessMark* const first = first_use.load();
  if (first == nullptr || first->Holds()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s: process %d was made by fork() of one that had opened a store, and "
      "threads that writing needs stay behind in a fork: start the process by "
      "'spawn' or 'forkserver' (exec), or open no store before the fork; "
      "reading is possible here",
      directory, getpid()));
}

}  // namespace ckptree::kv
