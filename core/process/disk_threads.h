// SPDX-License-Identifier: Apache-2.0

// Threads for work that waits for the disk more than it computes.

#ifndef CKPTREE_CORE_PROCESS_DISK_THREADS_H_
#define CKPTREE_CORE_PROCESS_DISK_THREADS_H_

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace ckptree::internal {

// Calls `work` on this thread and at the same time on up to `threads` - 1
// others, fewer where the system gives no more; returns when all have returned.
// `work` must not throw. TBB's workers are as many as there are processors, and
// one that waits for the disk keeps its processor idle: these are for then.
template <typename Work>
void RunOnDiskThreads(std::size_t threads, Work work) {
  std::vector<std::thread> others;
  try {
    others.reserve(threads);
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::exception&) {
    // No thread or no memory for one: those there are do what is left.
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_DISK_THREADS_H_
