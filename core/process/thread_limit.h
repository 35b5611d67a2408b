// SPDX-License-Identifier: Apache-2.0

// How many threads are at work at once, where that may change.

#ifndef CKPTREE_CORE_PROCESS_THREAD_LIMIT_H_
#define CKPTREE_CORE_PROCESS_THREAD_LIMIT_H_

#include <limits>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::internal {

// Threads work in turns under a limit; those beyond it sleep until one of the
// others has finished its piece, or the limit is lifted. Thread-safe.
class ThreadLimit {
 public:
  // At most `threads`, 1 or more, unless the limit was lifted before.
  void Set(int threads) {
    const absl::MutexLock lock(&mu_);
    if (!lifted_) most_ = threads;
  }
  // For good.
  void Lift() {
    const absl::MutexLock lock(&mu_);
    lifted_ = true;
    most_ = std::numeric_limits<int>::max();
  }

  // A piece of work, while it lives. Not one inside of another on a thread: it
  // would wait for itself.
  class Piece {
   public:
    explicit Piece(ThreadLimit* limit) : limit_(limit) {
      if (limit_ == nullptr) return;
      const absl::MutexLock lock(&limit_->mu_);
      limit_->mu_.Await(absl::Condition(limit_, &ThreadLimit::MayWork));
      ++limit_->at_work_;
    }
    ~Piece() {
      if (limit_ == nullptr) return;
      const absl::MutexLock lock(&limit_->mu_);
      --limit_->at_work_;
    }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

   private:
    ThreadLimit* const limit_;  // Null: none.
  };

 private:
  bool MayWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return at_work_ < most_;
  }

  absl::Mutex mu_;
  bool lifted_ ABSL_GUARDED_BY(mu_) = false;
  int most_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int>::max();
  int at_work_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_THREAD_LIMIT_H_
