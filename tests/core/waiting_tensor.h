// SPDX-License-Identifier: Apache-2.0

// An array that a save cannot finish with before the test says so.

#ifndef CKPTREE_TESTS_CORE_WAITING_TENSOR_H_
#define CKPTREE_TESTS_CORE_WAITING_TENSOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "ckptree/tensor.h"

namespace ckptree::testing {

// 1000 bytes, each a 7, that are there once `set` was given. Too large to be
// copied by Submit() itself, and one piece: it blocks one thread of the store.
// Saves beside it need another one: see StoreOptions::threads.
inline Tensor WaitingFor(absl::Notification& set) {
  Tensor waiting;
  waiting.dtype = DType::kUint8;
  waiting.shape = {1000};
  waiting.copy = [&set](std::uint64_t, std::span<std::byte> to) {
    set.WaitForNotification();
    std::ranges::fill(to, std::byte{7});
    return absl::OkStatus();
  };
  return waiting;
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_CORE_WAITING_TENSOR_H_
