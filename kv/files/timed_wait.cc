// SPDX-License-Identifier: Apache-2.0

#include "kv/timed_wait.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/monotonic.h"
#include "kv/process_mark.h"

namespace ckptree::kv {
namespace {

// The thread stays so long with nobody who waits.
constexpr std::chrono::seconds kIdle{5};

// Wakes at their end who wait in this process. Never destroyed: threads may
// wait until the process is gone.
class AlarmClock {
 public:
  // A forked child has none of the threads, and its copy may be locked.
  static AlarmClock& OfProcess() {
    static std::atomic<AlarmClock*> current{nullptr};
    AlarmClock* clock = current.load(std::memory_order_acquire);
    while (clock == nullptr || !clock->mark_.Holds()) {
      auto* const made = new AlarmClock;
      if (current.compare_exchange_strong(clock, made)) return *made;
      delete made;
    }
    return *clock;
  }

  // As AwaitUntil(); `end` is to come.
  bool Await(absl::Mutex& mutex, const absl::Condition& condition,
             absl::Time end) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Sleeper sleeper{&mutex};
    std::multimap<absl::Time, Sleeper*>::iterator at;
    bool runs = false;
    {
      const std::lock_guard lock(mutex_);
      runs = running_ || Start();
      try {
        if (runs) at = sleepers_.emplace(end, &sleeper);
      } catch (const std::bad_alloc&) {
        runs = false;
      }
      if (end < wakes_) changed_.notify_one();
    }
    // A process that may have no more threads, or memory, goes by the time of
    // day.
    if (!runs) return mutex.AwaitWithTimeout(condition, end - MonotonicNow());
    const auto over = [&] { return sleeper.is_late || condition.Eval(); };
    mutex.Await(absl::Condition(&over));
    {
      std::unique_lock lock(mutex_);
      if (sleeper.is_late) {
        // The thread had the mutex, and may be about to let go of it.
        called_.wait(lock, [&] { return !sleeper.is_called; });
        return condition.Eval();
      }
      if (!sleeper.is_called) {
        sleepers_.erase(at);
        return true;
      }
    }
    // The thread waits for the mutex, which must stay until it had it.
    mutex.Unlock();
    {
      std::unique_lock lock(mutex_);
      called_.wait(lock, [&] { return !sleeper.is_called; });
    }
    mutex.Lock();
    return condition.Eval();
  }

 private:
  struct Sleeper {
    absl::Mutex* mutex;
    bool is_late = false;    // Guarded by *mutex.
    bool is_called = false;  // Guarded by mutex_: the thread is at it.
  };

  // False where there is no room for a thread.
  bool Start() {
    // No handler of the program runs in it.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    try {
      std::thread([this] { Loop(); }).detach();
      running_ = true;
    } catch (const std::exception&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return running_;
  }

  void Loop() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock lock(mutex_);
    while (true) {
      if (sleepers_.empty()) {
        wakes_ = absl::InfiniteFuture();
        const bool any = changed_.wait_for(
            lock, kIdle, [this] { return !sleepers_.empty(); });
        if (any) continue;
        running_ = false;
        return;
      }
      const auto first = sleepers_.begin();
      const absl::Duration left = first->first - MonotonicNow();
      if (left > absl::ZeroDuration()) {
        // By the clock that only goes forward, too.
        wakes_ = first->first;
        changed_.wait_for(lock, absl::ToChronoNanoseconds(left));
        continue;
      }
      Sleeper* const sleeper = first->second;
      sleepers_.erase(first);
      sleeper->is_called = true;
      lock.unlock();
      sleeper->mutex->Lock();
      sleeper->is_late = true;
      sleeper->mutex->Unlock();
      lock.lock();
      sleeper->is_called = false;
      called_.notify_all();
    }
  }

  const ProcessMark mark_;
  // Behind the mutex of who waits; the thread never takes that under it.
  std::mutex mutex_;
  std::condition_variable changed_;  // Somebody is to be woken before wakes_.
  std::condition_variable called_;
  std::multimap<absl::Time, Sleeper*> sleepers_;
  absl::Time wakes_ = absl::InfinitePast();  // When the thread looks again.
  bool running_ = false;
};

}  // namespace

bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition,
                absl::Time end) {
  if (condition.Eval()) return true;
  if (end == absl::InfiniteFuture()) {
    mutex.Await(condition);
    return true;
  }
  if (end <= MonotonicNow()) return false;
  AlarmClock* clock = nullptr;
  try {
    clock = &AlarmClock::OfProcess();
  } catch (const std::bad_alloc&) {
    return mutex.AwaitWithTimeout(condition, end - MonotonicNow());
  }
  return clock->Await(mutex, condition, end);
}

bool AwaitFor(absl::Mutex& mutex, const absl::Condition& condition,
              absl::Duration timeout) {
  return AwaitUntil(mutex, condition, MonotonicNow() + timeout);
}

}  // namespace ckptree::kv
