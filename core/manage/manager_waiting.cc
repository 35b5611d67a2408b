// SPDX-License-Identifier: Apache-2.0

// The saves of a manager that are in flight: how they ended, and who waits for
// them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ckptree/manager.h"
#include "core/engine/engine.h"
#include "core/manage/manager_impl.h"
#include "core/process/guarded_call.h"
#include "kv/monotonic.h"

namespace ckptree {

using internal::GuardedResult;

namespace {

absl::Status GoesOn(std::int64_t step) {
  return absl::DeadlineExceededError(
      absl::StrFormat("step %d is still being saved; the save goes on", step));
}

// How often a wait asks whether to go on.
constexpr absl::Duration kMoment = absl::Milliseconds(50);

}  // namespace

absl::Status CheckpointManager::Impl::WaitForSave(SaveHandle& save,
                                                  absl::Time deadline) {
  const absl::Status status = save.WaitCommitted(deadline - kv::MonotonicNow());
  if (!absl::IsDeadlineExceeded(status) || save.Done()) return absl::OkStatus();
  return GoesOn(save.step());
}

void CheckpointManager::Impl::Settle() const {
  const absl::MutexLock lock(&mu);
  std::erase_if(in_flight, [this](SaveHandle& save) {
    mu.AssertHeld();
    if (!save.Done()) return false;
    const absl::Status status = save.WaitCommitted(absl::ZeroDuration());
    // One at most is kept: a lasting one would come with every save.
    if (absl::Status problem = save.PolicyProblem(); !problem.ok()) {
      policy_problem = std::move(problem);
    }
    // Who cancels does not need to be told.
    const bool asked =
        absl::IsCancelled(status) && (!ranks || save.save_->cancelled());
    if (status.ok() || asked) return true;
    // A rank that did not come is no wait that ended.
    errors.push_back(ranks && absl::IsDeadlineExceeded(status)
                         ? absl::UnavailableError(status.message())
                         : status);
    return true;
  });
}

absl::Status CheckpointManager::Impl::NextError() const {
  Settle();
  const absl::MutexLock lock(&mu);
  if (errors.empty()) return absl::OkStatus();
  absl::Status error = std::move(errors.front());
  errors.pop_front();
  return error;
}

absl::Status CheckpointManager::Impl::NextProblem() const {
  CKPTREE_RETURN_IF_ERROR(NextError());
  const absl::MutexLock lock(&mu);
  return std::exchange(policy_problem, absl::OkStatus());
}

absl::Status CheckpointManager::Impl::WaitForRoom(
    std::size_t most, absl::Duration timeout,
    const std::function<bool()>& cancelled) const {
  const absl::Time deadline = kv::MonotonicNow() + timeout;
  while (true) {
    Settle();
    SaveHandle oldest;
    {
      const absl::MutexLock lock(&mu);
      if (in_flight.size() <= most) return absl::OkStatus();
      oldest = in_flight.front();
    }
    const absl::Time moment =
        cancelled ? kv::MonotonicNow() + kMoment : absl::InfiniteFuture();
    const absl::Status waited = WaitForSave(oldest, std::min(deadline, moment));
    if (waited.ok()) continue;
    if (moment >= deadline) return waited;
    CKPTREE_RETURN_IF_ERROR(internal::GuardedStatus(
        "function 'cancelled'", [&cancelled]() -> absl::Status {
          if (!cancelled()) return absl::OkStatus();
          return absl::CancelledError("the save was stopped before it began");
        }));
  }
}

void CheckpointManager::Impl::LeaveSaves() {
  const absl::MutexLock lock(&mu);
  for (const SaveHandle& handle : in_flight) {
    handle.save_->is_of_manager.store(false);
  }
}

absl::Status CheckpointManager::Impl::WaitForOwn(absl::Duration timeout) const {
  // In a forked child there is nobody to wait for.
  CKPTREE_RETURN_IF_ERROR(CheckUsable());
  const absl::Time deadline = kv::MonotonicNow() + timeout;
  std::vector<SaveHandle> handles;
  {
    const absl::MutexLock lock(&mu);
    handles.assign(in_flight.begin(), in_flight.end());
  }
  for (SaveHandle& handle : handles) {
    CKPTREE_RETURN_IF_ERROR(WaitForSave(handle, deadline));
  }
  return absl::OkStatus();
}

absl::Status CheckpointManager::Impl::WaitForAll(absl::Duration timeout) const {
  const absl::Time deadline = kv::MonotonicNow() + timeout;
  CKPTREE_RETURN_IF_ERROR(WaitForOwn(timeout));
  const internal::StepWriter* const writer = store.engine_->writer();
  // A callback of the store would wait for its own thread.
  if (writer == nullptr || engine().IsInCallback()) return absl::OkStatus();
  for (const auto& save : writer->InFlight()) {
    if (!save->WaitDone(deadline - kv::MonotonicNow()))
      return GoesOn(save->step);
  }
  return absl::OkStatus();
}

absl::Status CheckpointManager::Impl::WaitToRead() const {
  if (engine().IsInCallback()) return CheckUsable();
  return WaitForAll(options.save_timeout);
}

absl::Status CheckpointManager::WaitUntilFinished(absl::Duration timeout) {
  return GuardedResult("WaitUntilFinished", [&]() -> absl::Status {
    const absl::Status waited = impl_->WaitForOwn(timeout);
    if (waited.ok() || absl::IsDeadlineExceeded(waited)) {
      CKPTREE_RETURN_IF_ERROR(impl_->NextProblem());
    }
    return waited;
  });
}

absl::Status CheckpointManager::WaitForSaves(SavesOf whose,
                                             absl::Duration timeout) const {
  return GuardedResult("WaitForSaves", [&]() -> absl::Status {
    return whose == SavesOf::kManager ? impl_->WaitForOwn(timeout)
                                      : impl_->WaitForAll(timeout);
  });
}

absl::Status CheckpointManager::CheckForErrors() {
  return GuardedResult("CheckForErrors",
                       [&]() -> absl::Status { return impl_->NextProblem(); });
}

bool CheckpointManager::IsSavingInProgress() const {
  if (impl_->engine().forked()) return false;
  // A save whose end finds no room yet is in flight as before.
  internal::GuardedStatus("IsSavingInProgress", [&] {
    impl_->Settle();
    return absl::OkStatus();
  }).IgnoreError();
  const absl::MutexLock lock(&impl_->mu);
  return !impl_->in_flight.empty();
}

}  // namespace ckptree
