// SPDX-License-Identifier: Apache-2.0

// The time of day.

#ifndef CKPTREE_KV_WALL_CLOCK_H_
#define CKPTREE_KV_WALL_CLOCK_H_

#include <chrono>

#include "absl/status/status.h"

namespace ckptree::kv {

// kFailedPrecondition before 1970, from when on RocksDB counts seconds without
// a sign: it ends the process there. Abseil's clock remembers; this asks.
inline absl::Status CheckClock() {
  if (std::chrono::system_clock::now().time_since_epoch().count() >= 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the clock of this machine says that it is before 1970: set it");
}

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_WALL_CLOCK_H_
