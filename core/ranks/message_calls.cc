// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/message_calls.h"

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"

namespace ckptree::internal {
namespace {

constexpr double kPartOfSilent = 10;
// Of full times, from one that was not answered to the next that is tried.
constexpr double kTimesBetween = 6;

}  // namespace

kv::Call MessageCalls::Begin() {
  const absl::MutexLock lock(&mu_);
  if (!silent_) return kv::Call::Within(most_);
  if (kv::MonotonicNow() >= full_again_) {
    full_again_ = kv::MonotonicNow() + kTimesBetween * most_;
    return kv::Call::Within(most_);
  }
  return kv::Call::Within(most_ / kPartOfSilent);
}

void MessageCalls::Ended(const kv::Call& call, const absl::Status& status) {
  const absl::MutexLock lock(&mu_);
  const absl::Time now = kv::MonotonicNow();
  // What is refused was answered.
  const bool answered = status.ok() || now < call.deadline;
  if (!answered && !silent_) full_again_ = now + kTimesBetween * most_;
  silent_ = !answered;
}

}  // namespace ckptree::internal
