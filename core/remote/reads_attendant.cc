// SPDX-License-Identifier: Apache-2.0

#include "core/remote/reads_attendant.h"

#include <exception>
#include <utility>

#include "core/process/guarded_call.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);

}  // namespace

ReadsAttendant::ReadsAttendant(std::shared_ptr<RemoteTrouble> trouble,
                               std::function<bool()> cancelled,
                               absl::Duration stays)
    : trouble_(std::move(trouble)),
      cancelled_(GuardedQuestion(std::move(cancelled))),
      stays_(stays) {
  const absl::MutexLock lock(&mu_);
  trouble_->Attend(stop_.get_token());
}

ReadsAttendant::~ReadsAttendant() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (mark_.Holds()) {
    Rest();
  } else if (thread_.joinable()) {
    thread_.detach();  // It is not in this process.
  }
}

void ReadsAttendant::Begin() {
  const absl::MutexLock lock(&mu_);
  if (reading_ == 0 && stop_.stop_requested()) {
    std::stop_source next;
    trouble_->Attend(next.get_token());
    trouble_->Leave(stop_.get_token());
    stop_ = std::move(next);
  }
  ++reading_;
  ++begun_;
  if (attends_ || rests_) return;
  // The one before is past its last look.
  if (thread_.joinable()) thread_.join();
  try {
    thread_ = std::thread([this] { Attend(); });
  } catch (const std::exception&) {
    return;  // No thread is to be had: what is read comes all the same.
  }
  attends_ = true;
  ++started_;
}

void ReadsAttendant::End() {
  const absl::MutexLock lock(&mu_);
  --reading_;
}

void ReadsAttendant::Rest() {
  std::thread ended;
  {
    const absl::MutexLock lock(&mu_);
    // From the log, which its own thread is in.
    if (thread_.get_id() == std::this_thread::get_id()) return;
    rests_ = true;
    ended = std::move(thread_);
  }
  if (ended.joinable()) ended.join();
  const absl::MutexLock lock(&mu_);
  rests_ = false;
}

void ReadsAttendant::Attend() {
  std::uint64_t seen = 0;
  absl::Duration idle;
  while (true) {
    std::stop_source stop(std::nostopstate);
    {
      const absl::MutexLock lock(&mu_);
      kv::AwaitFor(mu_, absl::Condition(&rests_), kLook);
      idle =
          reading_ > 0 || begun_ != seen ? absl::ZeroDuration() : idle + kLook;
      seen = begun_;
      if (rests_ || (reading_ == 0 && idle >= stays_)) {
        attends_ = false;
        return;
      }
      if (reading_ == 0) continue;
      stop = stop_;
    }
    if (cancelled()) stop.request_stop();
    GuardedCall("Look", [this] { trouble_->Look(); }).IgnoreError();
  }
}

}  // namespace ckptree::internal
