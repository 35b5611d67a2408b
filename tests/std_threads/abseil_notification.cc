// SPDX-License-Identifier: Apache-2.0

// absl::Notification, for the thread sanitizer: see README.md. Abseil's own
// looks at its flag before it takes the lock: inside its library the sanitizer
// sees neither.

#include <atomic>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

Notification::~Notification() { const MutexLock lock(&mutex_); }

void Notification::Notify() {
  const MutexLock lock(&mutex_);
  notified_yet_.store(true, std::memory_order_release);
}

void Notification::WaitForNotification() const {
  WaitForNotificationWithDeadline(InfiniteFuture());
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return WaitForNotificationWithDeadline(Now() + timeout);
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  const MutexLock lock(&mutex_);
  return mutex_.AwaitWithDeadline(
      Condition(&HasBeenNotifiedInternal, &notified_yet_), deadline);
}

ABSL_NAMESPACE_END
}  // namespace absl
