// SPDX-License-Identifier: Apache-2.0

// The thread of Python that delivers what the engine logs: when it starts.

#ifndef CKPTREE_PYTHON_SRC_LOG_THREAD_H_
#define CKPTREE_PYTHON_SRC_LOG_THREAD_H_

#include <atomic>

namespace ckptree::python {

// Whether a message is left to the thread that delivers, which may not be
// there: a store without a background has it.
inline std::atomic<bool> logs_need_thread = false;

// Starts that thread then, at the end of a call. Needs the GIL; raises nothing.
void StartLogs() noexcept;

// Calls it when it goes.
class StartsLogs {
 public:
  StartsLogs() = default;
  StartsLogs(const StartsLogs&) = delete;
  StartsLogs& operator=(const StartsLogs&) = delete;
  ~StartsLogs() {
    if (logs_need_thread.load(std::memory_order_relaxed)) StartLogs();
  }
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LOG_THREAD_H_
