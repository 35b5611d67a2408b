// SPDX-License-Identifier: Apache-2.0

// A counter behind a lock, one behind a notification, and one without either:
// what the preset `tsan` must report of this is the last, and nothing else.

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

namespace {

struct Counters {
  absl::Mutex mu;
  int locked ABSL_GUARDED_BY(mu) = 0;
  int racing = 0;

  void Locked() {
    absl::MutexLock lock(&mu);
    ++locked;
  }
  void PlantedRace() { ++racing; }
};

// Written here, then there; who waits finds that it was notified long ago.
int Notified() {
  absl::Notification written;
  std::atomic<bool> waits{false};
  int count = 0;
  std::thread waiting([&] {
    while (!waits.load(std::memory_order_relaxed)) std::this_thread::yield();
    written.WaitForNotification();
    ++count;
  });
  ++count;
  written.Notify();
  waits.store(true, std::memory_order_relaxed);
  waiting.join();
  return count;
}

}  // namespace

int main() {
  constexpr int kTasks = 2;
  Counters counters;
  std::atomic<int> there{0};
  tbb::task_arena arena(kTasks);
  arena.execute([&] {
    tbb::parallel_for(std::size_t{0}, std::size_t{kTasks}, [&](std::size_t) {
      // On two threads, in no order that the sanitizer would see.
      there.fetch_add(1, std::memory_order_relaxed);
      while (there.load(std::memory_order_relaxed) < kTasks) {
        std::this_thread::yield();
      }
      counters.Locked();
      counters.PlantedRace();
    });
  });
  const int notified = Notified();
  absl::MutexLock lock(&counters.mu);
  std::printf("%d of %d, %d of 2\n", counters.locked, kTasks, notified);
  return counters.locked == kTasks && notified == 2 ? 0 : 1;
}
