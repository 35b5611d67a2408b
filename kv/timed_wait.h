// SPDX-License-Identifier: Apache-2.0

// Waits that end in time, whatever happens to the time of day.

#ifndef CKPTREE_KV_TIMED_WAIT_H_
#define CKPTREE_KV_TIMED_WAIT_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ckptree::kv {

// As Mutex::AwaitWithDeadline(), by MonotonicNow(): returns whether `condition`
// holds, by `end` at the latest. That one, as each wait of Abseil with an end,
// ends at a time of day: where the clock of the machine is set back by an hour
// before, it lasts an hour longer, and so would a slice of it. Here a thread of
// this process, which is there while anybody waits so, takes `mutex` for a
// moment at `end`.
//
// REQUIRES: nobody holds `mutex` over I/O.
bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition,
                absl::Time end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

// The same, from now on.
bool AwaitFor(absl::Mutex& mutex, const absl::Condition& condition,
              absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

// As absl::Notification, of one notice.
//
// Thread-safe.
class TimedNotice {
 public:
  TimedNotice() = default;
  // Behind whoever gives it: the notice may go once somebody has it.
  ~TimedNotice() { const absl::MutexLock lock(&mutex_); }
  void Give() {
    const absl::MutexLock lock(&mutex_);
    given_ = true;
  }
  // True where it was given.
  bool WaitUntil(absl::Time end) {
    const absl::MutexLock lock(&mutex_);
    return AwaitUntil(mutex_, absl::Condition(&given_), end);
  }
  bool WaitFor(absl::Duration timeout) {
    const absl::MutexLock lock(&mutex_);
    return AwaitFor(mutex_, absl::Condition(&given_), timeout);
  }

 private:
  absl::Mutex mutex_;
  bool given_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TIMED_WAIT_H_
