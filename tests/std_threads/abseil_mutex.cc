// SPDX-License-Identifier: Apache-2.0

// absl::Mutex on std::mutex, for the thread sanitizer: see README.md. Linked
// into a program it stands before Abseil's library, also for that library.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

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
  std::atomic<std::thread::id> holder;
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

// The caller holds the lock; where the condition does not hold, he is about to
// give it away.
bool Holds(Slot& slot, const Condition& condition) {
  slot.holder = std::this_thread::get_id();
  if (condition.Eval()) return true;
  slot.holder = std::thread::id();
  return false;
}

}  // namespace

void Mutex::Lock() {
  Slot& slot = SlotIn(mu_);
  slot.mu.lock();
  slot.holder = std::this_thread::get_id();
}

bool Mutex::TryLock() {
  Slot& slot = SlotIn(mu_);
  if (!slot.mu.try_lock()) return false;
  slot.holder = std::this_thread::get_id();
  return true;
}

// Whoever waits looks whether its condition holds now.
void Mutex::Unlock() {
  Slot& slot = SlotIn(mu_);
  slot.changed.notify_all();
  slot.holder = std::thread::id();
  slot.mu.unlock();
}

void Mutex::AssertHeld() const {
  const Slot& slot = SlotIn(const_cast<std::atomic<std::intptr_t>&>(mu_));
  if (slot.holder != std::this_thread::get_id()) {
    std::fputs("absl::Mutex::AssertHeld: another thread holds it, or none\n",
               stderr);
    std::abort();
  }
}

void Mutex::ReaderLock() { Lock(); }

void Mutex::ReaderUnlock() { Unlock(); }

void Mutex::Await(const Condition& condition) {
  Slot& slot = SlotIn(mu_);
  std::unique_lock<std::mutex> lock(slot.mu, std::adopt_lock);
  slot.changed.notify_all();
  slot.changed.wait(lock, [&] { return Holds(slot, condition); });
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
  const bool holds = slot.changed.wait_until(
      lock, ToChronoTime(deadline), [&] { return Holds(slot, condition); });
  slot.holder = std::this_thread::get_id();
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
