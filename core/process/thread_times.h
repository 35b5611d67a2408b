// SPDX-License-Identifier: Apache-2.0

// What the time of a thread went into.

#ifndef CKPTREE_CORE_PROCESS_THREAD_TIMES_H_
#define CKPTREE_CORE_PROCESS_THREAD_TIMES_H_

namespace ckptree::internal {

// Seconds, since some moment of the past.
struct ThreadTimes {
  double passed = 0;
  double computed = 0;  // On a processor.
  double queued = 0;    // Ready, while others had the processors; 0 where the
                        // system does not say.

  // Of the thread that calls. Takes microseconds.
  static ThreadTimes Now();

  // How long it slept: in what `than` and this are around, for the disk.
  double SleptSince(const ThreadTimes& than) const {
    const double slept = (passed - than.passed) - (computed - than.computed) -
                         (queued - than.queued);
    return slept > 0 ? slept : 0;
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_THREAD_TIMES_H_
