// SPDX-License-Identifier: Apache-2.0

#include "tools/output/clock.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

namespace ckptree::tools {

absl::Time NowForAges() {
  const char* const text = std::getenv("SOURCE_DATE_EPOCH");
  std::int64_t seconds = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &seconds) && seconds >= 0) {
    return absl::FromUnixSeconds(seconds);
  }
  return absl::Now();
}

absl::Time NowForWaits() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace ckptree::tools
