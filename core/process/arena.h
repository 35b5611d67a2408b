// SPDX-License-Identifier: Apache-2.0

// Work for several processors at once. It is TBB's, but in a process that was
// forked off: TBB is there as the other threads of the parent had left it, so
// that a lock may be held by one that is gone. There the calling thread does
// all of it. A save, which no such process begins, may ask TBB for more than
// stands here.

#ifndef CKPTREE_CORE_PROCESS_ARENA_H_
#define CKPTREE_CORE_PROCESS_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "kv/process_use.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"
#include "tbb/task_group.h"

namespace ckptree::internal {

// So many threads, of which the caller is one. Thread-safe.
class Arena {
 public:
  explicit Arena(int slots) : arena_(slots) {}

  int max_concurrency() const { return arena_.max_concurrency(); }

  // Calls `work` on the calling thread, or another one of the arena; returns
  // when it did. What it spreads, with what stands below, is for these threads.
  template <typename Work>
  void execute(Work&& work) {
    if (kv::WasForked()) {
      work();
    } else {
      arena_.execute(std::forward<Work>(work));
    }
  }

 private:
  tbb::task_arena arena_;
};

// How many threads the arena has that this one works in.
inline std::size_t ThreadsHere() {
  if (kv::WasForked()) return 1;
  return static_cast<std::size_t>(tbb::this_task_arena::max_concurrency());
}

// work(i) for each i of [begin, end), in any order.
template <typename Work>
void ForEach(std::size_t begin, std::size_t end, const Work& work) {
  if (kv::WasForked()) {
    for (std::size_t i = begin; i < end; ++i) work(i);
  } else {
    tbb::parallel_for(begin, end, work);
  }
}

// work(begin, end) for pieces of [0, count) of about `grain` or more.
template <typename Work>
void ForEachRange(std::size_t count, std::size_t grain, const Work& work) {
  if (kv::WasForked()) {
    for (std::size_t i = 0; i < count; i += grain) {
      work(i, std::min(count, i + grain));
    }
  } else {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, grain),
                      [&](const tbb::blocked_range<std::size_t>& range) {
                        work(range.begin(), range.end());
                      });
  }
}

// Tasks of which somebody waits for all. Confined to one thread; the tasks are
// not. What one throws, wait() throws, or run() where it calls it.
class TaskGroup {
 public:
  TaskGroup() {
    if (!kv::WasForked()) tasks_.emplace();
  }

  template <typename Task>
  void run(Task&& task) {
    if (tasks_.has_value()) {
      tasks_->run(std::forward<Task>(task));
    } else {
      task();
    }
  }
  void wait() {
    if (tasks_.has_value()) tasks_->wait();
  }

 private:
  std::optional<tbb::task_group> tasks_;
};

// Calls `work`; while it waits for tasks of its own this thread begins no
// others.
template <typename Work>
void Isolated(const Work& work) {
  if (kv::WasForked()) {
    work();
  } else {
    tbb::this_task_arena::isolate(work);
  }
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_ARENA_H_
