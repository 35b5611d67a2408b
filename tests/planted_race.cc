// A counter behind a lock, and one without: what the preset `tsan` must report
// of this is the second, and nothing else.

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <thread>

#include "absl/synchronization/mutex.h"
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
  absl::MutexLock lock(&counters.mu);
  std::printf("%d of %d\n", counters.locked, kTasks);
  return counters.locked == kTasks ? 0 : 1;
}
