// SPDX-License-Identifier: Apache-2.0

#include "core/save/save.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/process/guarded_call.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {
namespace {

absl::Status TimedOut(std::int64_t step, const char* what) {
  return absl::DeadlineExceededError(
      absl::StrFormat("step %d is not %s yet; the save goes on", step, what));
}

}  // namespace

// Who only asks waits for nothing.
void Save::HurryUnless(bool (Save::*over)() const,
                       absl::Duration timeout) const {
  if (timeout <= absl::ZeroDuration()) return;
  {
    const absl::MutexLock lock(&mu_);
    if ((this->*over)()) return;
  }
  limit.Lift();
}

absl::Status Save::WaitStaged(absl::Duration timeout) {
  HurryUnless(&Save::StagedOrDone, timeout);
  absl::MutexLock lock(&mu_);
  if (!kv::AwaitFor(mu_, absl::Condition(this, &Save::StagedOrDone), timeout)) {
    return TimedOut(step, "staged");
  }
  if (!result_.has_value()) return absl::OkStatus();
  seen_ = true;
  return *result_;
}

bool Save::WaitStagedOrDone(absl::Duration timeout) const {
  HurryUnless(&Save::StagedOrDone, timeout);
  absl::MutexLock lock(&mu_);
  return kv::AwaitFor(mu_, absl::Condition(this, &Save::StagedOrDone), timeout);
}

void Save::WaitCopied() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &Save::CopiedOrDone));
}

absl::Status Save::WaitCommitted(absl::Duration timeout) {
  HurryUnless(&Save::HasResult, timeout);
  absl::MutexLock lock(&mu_);
  if (!kv::AwaitFor(mu_, absl::Condition(this, &Save::HasResult), timeout)) {
    return TimedOut(step, "committed");
  }
  seen_ = true;
  return *result_;
}

bool Save::WaitDone(absl::Duration timeout) const {
  HurryUnless(&Save::HasResult, timeout);
  absl::MutexLock lock(&mu_);
  return kv::AwaitFor(mu_, absl::Condition(this, &Save::HasResult), timeout);
}

absl::Status Save::Result() const {
  const absl::MutexLock lock(&mu_);
  return result_.value_or(absl::UnavailableError("the save goes on"));
}

bool Save::Staged() const {
  absl::MutexLock lock(&mu_);
  return StagedOrDone();
}

bool Save::Done() const {
  absl::MutexLock lock(&mu_);
  return result_.has_value();
}

void Save::OnCommitted(std::function<void(const absl::Status&)> callback) {
  absl::Status result;
  {
    absl::MutexLock lock(&mu_);
    if (!result_.has_value()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    seen_ = true;
    result = *result_;
  }
  // As where the save ends later: what a callback throws ends in it.
  GuardedCall("OnCommitted", [&] { callback(result); }).IgnoreError();
}

void Save::OnDone(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mu_);
    if (!result_.has_value()) {
      endings_.push_back(std::move(callback));
      return;
    }
  }
  GuardedCall("OnDone", callback).IgnoreError();
}

void Save::Cancel() {
  absl::MutexLock lock(&mu_);
  if (!committing_ && !result_.has_value()) cancelled_.store(true);
}

ckptree::Progress Save::Progress() const {
  ckptree::Progress progress;
  progress.step = step;
  progress.bytes_total = bytes_total;
  progress.leaves_total = leaves_total;
  progress.bytes_compared = counters.compared.load();
  progress.bytes_written = counters.written.load();
  progress.bytes_unchanged = counters.unchanged.load();
  absl::MutexLock lock(&mu_);
  progress.phase = phase_;
  // A save that overtook its copies may have ended before that was said.
  if (staged_ || (result_.has_value() && result_->ok())) {
    progress.bytes_staged = bytes_total;
  } else if (content != nullptr) {
    progress.bytes_staged = content->staged_bytes();
  }
  return progress;
}

absl::Status Save::PolicyProblem() const {
  absl::MutexLock lock(&mu_);
  return policy_problem_;
}

void Save::SetPolicyProblem(const absl::Status& problem) {
  absl::MutexLock lock(&mu_);
  policy_problem_ = problem;
}

std::uint64_t Save::version() const {
  absl::MutexLock lock(&mu_);
  return version_;
}

void Save::SetPhase(Progress::Phase phase) {
  absl::MutexLock lock(&mu_);
  phase_ = phase;
}

void Save::SetStaged() {
  absl::MutexLock lock(&mu_);
  staged_ = true;
  staged_ns_ = absl::GetCurrentTimeNanos();
}

void Save::SetCopied() {
  absl::MutexLock lock(&mu_);
  copied_ = true;
}

void Save::SetCopyEnded() {
  absl::MutexLock lock(&mu_);
  copy_ended_ = true;
}

void Save::WaitCopyEnded() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &Save::CopyEnded));
}

bool Save::Copied() const {
  const absl::MutexLock lock(&mu_);
  return CopiedOrDone();
}

std::int64_t Save::staged_ns() const {
  absl::MutexLock lock(&mu_);
  return staged_ns_;
}

bool Save::EnterCommit() {
  absl::MutexLock lock(&mu_);
  if (cancelled_.load()) return false;
  committing_ = true;
  return true;
}

absl::Status Save::Finish(const absl::Status& status, std::uint64_t version) {
  std::vector<std::function<void(const absl::Status&)>> callbacks;
  std::vector<std::function<void()>> endings;
  std::shared_ptr<StagedContent> done;  // Freed without the lock.
  {
    absl::MutexLock lock(&mu_);
    done.swap(content);
    result_ = status;
    version_ = status.ok() ? version : 0;
    phase_ = status.ok() ? Progress::Phase::kDone : Progress::Phase::kFailed;
    callbacks.swap(callbacks_);
    endings.swap(endings_);
    if (!callbacks.empty()) seen_ = true;
  }
  absl::Status thrown;
  for (const auto& callback : callbacks) {
    thrown.Update(GuardedCall("OnCommitted", [&] { callback(status); }));
  }
  for (const auto& ending : endings) {
    thrown.Update(GuardedCall("OnDone", [&] { ending(); }));
  }
  return thrown;
}

std::shared_ptr<Save> Save::ForHandle(std::shared_ptr<Save> save) {
  Save* const held = save.get();
  ++held->handles_;
  return {held, [save = std::move(save)](Save* one) { --one->handles_; }};
}

bool Save::FailedUnseen() const {
  absl::MutexLock lock(&mu_);
  return result_.has_value() && !result_->ok() && !seen_;
}

void Save::PutFailureBack() {
  const absl::MutexLock lock(&mu_);
  seen_ = false;
}

absl::Status Save::TakeFailure() {
  absl::MutexLock lock(&mu_);
  seen_ = true;
  return result_.value_or(absl::OkStatus());
}

}  // namespace ckptree::internal
