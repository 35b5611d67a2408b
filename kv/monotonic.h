// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_KV_MONOTONIC_H_
#define CKPTREE_KV_MONOTONIC_H_

#include <chrono>

#include "absl/time/time.h"

namespace ckptree::kv {

// For deadlines and how long something took: a clock that only goes forward,
// whatever happens to the time of day. It is to be compared with itself, in one
// process, and is no time of day.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// A small read that takes as long came out of the disk: nothing that is in the
// page cache takes as long, and no disk is as fast.
inline constexpr std::chrono::microseconds kReadOfDisk{20};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_MONOTONIC_H_
