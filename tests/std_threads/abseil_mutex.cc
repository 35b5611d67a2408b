// absl::Mutex on std::mutex, for the thread sanitizer: see README.md. Linked
// into a program it stands before Abseil's library, also for that library.

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// Its address stands in the mutex's only word, whose lower bits mean something
// to Abseil's destructor: they stay zero. Never freed.
struct alignas(256) Slot {
  std::mutex mu;
  std::condition_variable changed;
};

Slot& SlotIn(std::atomic<std::intptr_t>& word) {
  std::intptr_t there = word.load(std::memory_order_acquire);
  if (there == 0) {
    auto* const made = new Slot;
    if (word.compare_exchange_strong(there,
                                     reinterpret_cast<std::intptr_t>(made))) {
      return *made;
    }
    delete made;
  }
  return *reinterpret_cast<Slot*>(there);
}

}  // namespace

void Mutex::Lock() { SlotIn(mu_).mu.lock(); }

bool Mutex::TryLock() { return SlotIn(mu_).mu.try_lock(); }

// Whoever waits looks whether its condition holds now.
void Mutex::Unlock() {
  Slot& slot = SlotIn(mu_);
  slot.changed.notify_all();
  slot.mu.unlock();
}

void Mutex::ReaderLock() { Lock(); }

void Mutex::ReaderUnlock() { Unlock(); }

void Mutex::Await(const Condition& condition) {
  Slot& slot = SlotIn(mu_);
  std::unique_lock<std::mutex> lock(slot.mu, std::adopt_lock);
  slot.changed.notify_all();
  slot.changed.wait(lock, [&] { return condition.Eval(); });
  lock.release();
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  if (deadline == InfiniteFuture()) {
    Await(condition);
    return true;
  }
  Slot& slot = SlotIn(mu_);
  std::unique_lock<std::mutex> lock(slot.mu, std::adopt_lock);
  slot.changed.notify_all();
  const bool holds = slot.changed.wait_until(lock, ToChronoTime(deadline),
                                             [&] { return condition.Eval(); });
  lock.release();
  return holds;
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}

void Mutex::LockWhen(const Condition& condition) {
  Lock();
  Await(condition);
}

ABSL_NAMESPACE_END
}  // namespace absl
