// SPDX-License-Identifier: Apache-2.0

// The first failure among tasks that run at once.

#ifndef CKPTREE_CORE_PROCESS_FIRST_ERROR_H_
#define CKPTREE_CORE_PROCESS_FIRST_ERROR_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::internal {

// Thread-safe.
class FirstError {
 public:
  // True once a task failed: the others may stop.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Keeps `status` unless it is OK or not the first.
  void Note(const absl::Status& status) {
    if (status.ok()) return;
    any_.store(true, std::memory_order_relaxed);
    absl::MutexLock lock(&mu_);
    first_.Update(status);
  }

  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return first_;
  }

 private:
  std::atomic<bool> any_{false};
  mutable absl::Mutex mu_;
  absl::Status first_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_FIRST_ERROR_H_
