// SPDX-License-Identifier: Apache-2.0

// What waits for a thread cannot be done by that thread.

#ifndef CKPTREE_CORE_PROCESS_RUN_ELSEWHERE_H_
#define CKPTREE_CORE_PROCESS_RUN_ELSEWHERE_H_

#include <functional>
#include <system_error>
#include <thread>
#include <utility>

namespace ckptree::internal {

// Calls `work` in a thread of its own, which nobody waits for, and destroys it
// there. Where no thread can be made both are left undone: what `work` holds is
// leaked.
inline void RunElsewhere(std::function<void()> work) {
  auto* const held = new std::function<void()>(std::move(work));
  try {
    std::thread([held] {
      (*held)();
      delete held;
    }).detach();
  } catch (const std::system_error&) {
  }
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_RUN_ELSEWHERE_H_
