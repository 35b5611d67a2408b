// SPDX-License-Identifier: Apache-2.0

#include "kv/process_use.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <new>
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

// Who is where no fork should be; for the handlers of fork(), so that nothing
// of Abseil is asked for. Outlives every static.
struct Holds {
  std::mutex mu;
  std::condition_variable released;
  int count = 0;
};

Holds& AllHolds() {
  static auto* const holds = new Holds;
  return *holds;
}

thread_local int holds_here = 0;

constexpr std::chrono::seconds kForkWaits{1};

// The lock stays with this thread until the fork is done.
void WaitForHolds() {
  HaveTheClockMeasured();
  Holds& holds = AllHolds();
  std::unique_lock<std::mutex> lock(holds.mu);
  holds.released.wait_for(lock, kForkWaits,
                          [&] { return holds.count <= holds_here; });
  lock.release();
}

void ForkedInParent() { AllHolds().mu.unlock(); }

void ForkedInChild() {
  Holds& holds = AllHolds();
  holds.count = holds_here;
  new (&holds.released) std::condition_variable;  // None waits here.
  holds.mu.unlock();
  EndBeforeDestructors();
}

const ProcessMark* BeginUse() {
  first_use.store(new ProcessMark);  // Outlives every static.
  AllHolds();
#ifdef NDEBUG
  // In a build of Abseil with assertions, as Debian's is, every lock of an
  // absl::Mutex goes through one that the whole process shares.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  pthread_atfork(&WaitForHolds, &ForkedInParent, &ForkedInChild);
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

bool WasForked() {
  const ProcessMark* const first = first_use.load(std::memory_order_acquire);
  return first != nullptr && !first->Holds();
}

ForkHold::ForkHold() {
  Holds& holds = AllHolds();
  const std::lock_guard<std::mutex> lock(holds.mu);
  ++holds.count;
  ++holds_here;
}

ForkHold::~ForkHold() {
  Holds& holds = AllHolds();
  const std::lock_guard<std::mutex> lock(holds.mu);
  --holds.count;
  --holds_here;
  holds.released.notify_all();
}

absl::Status CheckMayWrite(const std::string& directory) {
  if (!WasForked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s: process %d was made by fork() of one that had opened a store, and "
      "threads that writing needs stay behind in a fork: start the process by "
      "'spawn' or 'forkserver' (exec), or open no store before the fork; "
      "reading is possible here",
      directory, getpid()));
}

}  // namespace ckptree::kv
