// SPDX-License-Identifier: Apache-2.0

// Locks that functions of the user may meet while the engine waits for them.

#ifndef CKPTREE_PYTHON_SRC_READ_HOLD_H_
#define CKPTREE_PYTHON_SRC_READ_HOLD_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "python/src/in_function.h"

namespace ckptree::python {

// Holds `mu` for reading. Waits for it, but in a function that the engine calls
// on this thread: whoever has it may wait for that function.
class ABSL_SCOPED_LOCKABLE ReadHold {
 public:
  explicit ReadHold(absl::Mutex* mu)
      ABSL_SHARED_LOCK_FUNCTION(mu) ABSL_NO_THREAD_SAFETY_ANALYSIS : mu_(mu) {
    if (!IsInFunction()) {
      mu->ReaderLock();
    } else if (!mu->ReaderTryLock()) {
      mu_ = nullptr;
    }
  }
  ~ReadHold() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (mu_ != nullptr) mu_->ReaderUnlock();
  }
  ReadHold(const ReadHold&) = delete;
  ReadHold& operator=(const ReadHold&) = delete;

  // False: it is not held.
  bool ok() const { return mu_ != nullptr; }

 private:
  absl::Mutex* mu_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_READ_HOLD_H_
