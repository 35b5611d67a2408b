// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/wait.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stop_token>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"

namespace ckptree::kv {
namespace {

// So that no sum of times is too large.
constexpr absl::Duration kLongest = absl::Hours(24);

}  // namespace

absl::Status CheckCall(const Call& call, const std::string& what) {
  if (call.cancelled.stop_requested()) {
    return absl::CancelledError(absl::StrCat(what, ": cancelled"));
  }
  if (MonotonicNow() >= call.deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, ": no answer before the deadline"));
  }
  return absl::OkStatus();
}

void WaitOrEnd(const Call& call, absl::Duration pause) {
  const absl::Duration left =
      std::min({pause, call.deadline - MonotonicNow(), kLongest});
  if (left <= absl::ZeroDuration()) return;
  // By the clock that only goes forward, without a thread of the engine: a
  // module has none.
  std::mutex mutex;
  std::condition_variable_any ended;
  std::unique_lock lock(mutex);
  ended.wait_for(lock, call.cancelled, absl::ToChronoNanoseconds(left),
                 [] { return false; });
}

absl::Duration PauseBefore(int tries, absl::Duration asked) {
  // Of each thread its own; which one it is does not matter.
  thread_local std::minstd_rand random{std::random_device{}()};
  const double bound =
      std::min(0.1 * static_cast<double>(1 << std::min(tries - 1, 8)), 20.0);
  std::uniform_real_distribution<double> some(bound / 2, bound);
  return std::max(asked, absl::Seconds(some(random)));
}

}  // namespace ckptree::kv
