// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_TASK_ARENA_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_TASK_ARENA_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

namespace tbb {

// How many threads work for this one; those that work for another have none.
inline int& SlotsOfThisThread() {
  thread_local int slots = 1;
  return slots;
}

class task_arena {
 public:
  static constexpr int automatic = -1;

  // At least four where it is more than one: threads meet on any machine.
  explicit task_arena(int slots)
      : slots_(slots == 1 ? 1 : std::max(slots, 4)) {}

  int max_concurrency() const { return slots_; }

  template <typename Function>
  void execute(const Function& function) {
    const int outside = std::exchange(SlotsOfThisThread(), slots_);
    function();
    SlotsOfThisThread() = outside;
  }

 private:
  const int slots_;
};

namespace this_task_arena {
inline int max_concurrency() { return SlotsOfThisThread(); }
// Threads that wait here take no other work at all.
template <typename Function>
auto isolate(const Function& function) {
  return function();
}
}  // namespace this_task_arena

// Calls `function` with 0 to count - 1, on as many threads as there are slots.
template <typename Function>
void OnSlots(std::size_t count, const Function& function) {
  std::atomic<std::size_t> next{0};
  // Relaxed: what one does must not seem to come before what another does.
  const auto claim = [&] {
    return next.fetch_add(1, std::memory_order_relaxed);
  };
  const auto work = [&] {
    for (std::size_t i = claim(); i < count; i = claim()) function(i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < SlotsOfThisThread(); ++i) {
    if (threads.size() + 1 < count) threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_TASK_ARENA_H_
