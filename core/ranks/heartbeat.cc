// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/heartbeat.h"

#include <utility>

#include "core/process/guarded_call.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {

Heartbeat::Heartbeat(MailWriter* mail, absl::Duration every,
                     std::function<void()> idle)
    : mail_(mail),
      every_(every),
      idle_(std::move(idle)),
      thread_([this] { Loop(); }) {}

Heartbeat::~Heartbeat() {
  {
    const absl::MutexLock lock(&mu_);
    closing_ = true;
  }
  thread_.join();
}

void Heartbeat::Begin() {
  const absl::MutexLock lock(&mu_);
  ++working_;
}

void Heartbeat::End() {
  const absl::MutexLock lock(&mu_);
  --working_;
}

void Heartbeat::Loop() {
  const auto needed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closing_ || working_ > 0 || idle_ != nullptr;
  };
  while (true) {
    bool works = false;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&needed));
      if (kv::AwaitFor(mu_, absl::Condition(&closing_), every_)) return;
      works = working_ > 0;
    }
    // Without the lock: a disk may be slow. For want of memory the next one
    // comes in time.
    GuardedCall("Beat", [&] {
      if (works) {
        mail_->Beat();
      } else if (idle_ != nullptr) {
        idle_();
      }
    }).IgnoreError();
  }
}

}  // namespace ckptree::internal
