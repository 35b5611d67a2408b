// SPDX-License-Identifier: Apache-2.0

// StepWriter: the order of the saves, and how many there are at once.

#include <map>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "core/process/engine_thread.h"
#include "core/save/step_writer.h"

namespace ckptree::internal {

// Step 1.
std::shared_ptr<Save> StepWriter::Begin(std::uint32_t branch, std::int64_t step,
                                        const SaveOptions& options) {
  absl::MutexLock lock(&mu_);
  auto save = std::make_shared<Save>(
      next_ticket_++, branch, step, options,
      absl::ToUnixNanos(options.time.value_or(absl::Now())));
  if (!refusing_) tickets_[save->ticket] = {save, Stage::kOpen};
  return save;
}

bool StepWriter::Submit(const std::shared_ptr<Save>& save) {
  absl::MutexLock lock(&mu_);
  // A callback that saves would wait for its own thread.
  if (!EngineThread::IsOf(context_.database)) {
    mu_.Await(absl::Condition(this, &StepWriter::HasRoom));
  }
  const auto it = tickets_.find(save->ticket);
  if (it == tickets_.end() || it->second.stage != Stage::kOpen) return false;
  it->second.stage = Stage::kReady;
  to_stage_.push_back(save);
  ++stats_.saves_in_flight;
  return true;
}

void StepWriter::Drop(const std::shared_ptr<Save>& save) {
  absl::MutexLock lock(&mu_);
  const auto it = tickets_.find(save->ticket);
  if (it == tickets_.end() || it->second.stage != Stage::kOpen) return;
  it->second.stage = Stage::kDropped;
}

void StepWriter::Fail(const std::shared_ptr<Save>& save) {
  absl::MutexLock lock(&mu_);
  ++stats_.saves_failed;
  failed_.push_back(save);
}

// Where the save that is next in line was not submitted yet, nothing ends
// before it is, maybe by the very thread that asks.
bool StepWriter::HasRoom() const {
  if (refusing_ || tickets_.empty()) return true;
  return stats_.saves_in_flight <
             static_cast<std::uint64_t>(context_.most_in_flight) ||
         tickets_.begin()->second.stage == Stage::kOpen;
}

bool StepWriter::CanWrite() const {
  if (tickets_.empty()) return stopping_;
  return tickets_.begin()->second.stage != Stage::kOpen || stopping_;
}

absl::Status StepWriter::WaitIdle(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const std::uint64_t last = next_ticket_;
  const auto done = [this, last]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    for (const auto& [number, ticket] : tickets_) {
      if (number < last && ticket.stage != Stage::kOpen) return false;
    }
    return true;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&done), timeout)) {
    return absl::DeadlineExceededError("saves are still in flight; they go on");
  }
  return absl::OkStatus();
}

absl::Status StepWriter::TakeUnseenFailure(bool only_dropped) {
  absl::MutexLock lock(&mu_);
  std::erase_if(failed_, [](const std::shared_ptr<Save>& save) {
    return !save->FailedUnseen();
  });
  for (auto it = failed_.begin(); it != failed_.end(); ++it) {
    if (only_dropped && it->use_count() > 1) continue;
    const absl::Status status = (*it)->TakeFailure();
    failed_.erase(it);
    return status;
  }
  return absl::OkStatus();
}

Stats StepWriter::stats() const {
  absl::MutexLock lock(&mu_);
  return stats_;
}

}  // namespace ckptree::internal
