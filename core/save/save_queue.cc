// SPDX-License-Identifier: Apache-2.0

// StepWriter: the order of the saves, and how many there are at once.

#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "core/process/engine_thread.h"
#include "core/save/step_writer.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {

void StepWriter::Hurry() const {
  for (const std::shared_ptr<Save>& save : queue_) save->limit.Lift();
}

// Step 1.
bool StepWriter::Submit(const std::shared_ptr<Save>& save) {
  absl::MutexLock lock(&mu_);
  // A callback that saves would wait for its own thread.
  if (!EngineThread::IsOf(context_.database)) {
    if (!HasRoom()) Hurry();
    mu_.Await(absl::Condition(this, &StepWriter::HasRoom));
  }
  if (refusing_) return false;
  queue_.push_back(save);
  // All or nothing, where there is no memory.
  absl::Cleanup undo = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    queue_.pop_back();
  };
  stager_.Add(save);
  std::move(undo).Cancel();
  ++submitted_;
  ++stats_.saves_in_flight;
  return true;
}

absl::Status StepWriter::WaitForRoom(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  if (!HasRoom() && timeout > absl::ZeroDuration()) Hurry();
  if (EngineThread::IsOf(context_.database) ||
      kv::AwaitFor(mu_, absl::Condition(this, &StepWriter::HasRoom), timeout)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError("as many saves as may be are in flight");
}

void StepWriter::Fail(const std::shared_ptr<Save>& save, const absl::Status&) {
  failed_.Add(save);
  absl::MutexLock lock(&mu_);
  ++stats_.saves_failed;
}

std::uint64_t StepWriter::submitted() const {
  absl::MutexLock lock(&mu_);
  return submitted_;
}

absl::Status StepWriter::WaitFor(std::uint64_t saves, absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  if (timeout > absl::ZeroDuration()) Hurry();
  const auto done = [this, saves]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return ended_ >= saves;
  };
  if (!kv::AwaitFor(mu_, absl::Condition(&done), timeout)) {
    return absl::DeadlineExceededError("saves are still in flight; they go on");
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const Save>> StepWriter::InFlight() const {
  std::vector<std::shared_ptr<const Save>> saves;
  absl::MutexLock lock(&mu_);
  for (const std::shared_ptr<Save>& save : queue_) {
    if (!save->Done()) saves.push_back(save);
  }
  return saves;
}

Stats StepWriter::stats() const {
  Stats stats;
  {
    const absl::MutexLock lock(&mu_);
    stats = stats_;
  }
  stager_.AddTo(&stats);
  return stats;
}

}  // namespace ckptree::internal
