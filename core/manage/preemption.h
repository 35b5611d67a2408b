// SPDX-License-Identifier: Apache-2.0

// SIGTERM as a notice that the process is about to be taken away.

#ifndef CKPTREE_CORE_MANAGE_PREEMPTION_H_
#define CKPTREE_CORE_MANAGE_PREEMPTION_H_

#include <memory>

namespace ckptree::internal {

// While one lives, SIGTERM ends nothing by itself: a handler notes it, and then
// calls the program's own, where it had one. The handler that was there comes
// back with the last of them, unless another handler has taken its place. A
// child that is forked off dies of the signal as it would have without.
//
// Thread-safe.
class SigtermWatch {
 public:
  SigtermWatch();
  ~SigtermWatch();
  SigtermWatch(const SigtermWatch&) = delete;
  SigtermWatch& operator=(const SigtermWatch&) = delete;

  // A signal came while any watch lived.
  static bool Noticed();
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_MANAGE_PREEMPTION_H_
