// SPDX-License-Identifier: Apache-2.0

// What a member waits for: the plan of its part, and what became of the step.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/ranks/member.h"
#include "core/version/base_loader.h"
#include "kv/monotonic.h"
#include "kv/timed_wait.h"
#include "schema/keys.h"
#include "schema/step_record.h"

namespace ckptree::internal {

using schema::MailKind;
using schema::RankMail;

namespace {

// A commit that is seen is durable a moment later, where its writer lives. A
// reader looks again after a second.
constexpr absl::Duration kSyncWait = absl::Seconds(3);

}  // namespace

std::optional<absl::Status> Member::Told(const StepCall& call) const {
  const RankMail* const outcome = coordinator_.OutcomeOf(call);
  if (outcome == nullptr) return std::nullopt;
  return StatusOf(*outcome);
}

absl::StatusOr<schema::RankPlan> Member::AwaitPlan(const Job& job) {
  const absl::Time begun = kv::MonotonicNow();
  const std::uint64_t settled = coordinator_.settled();
  Backoff backoff = WorkingBackoff();
  while (true) {
    mail_.Beat();
    CKPTREE_RETURN_IF_ERROR(coordinator_.Poll());
    if (const auto told = Told(job.call)) {
      if (!told->ok()) return *told;
      return absl::AbortedError("it was saved without this rank's part");
    }
    if (const RankMail* const mail = coordinator_.PlanOf(job.call)) {
      CKPTREE_ASSIGN_OR_RETURN(schema::RankPlan plan,
                               schema::DecodeRankPlan(mail->body));
      CKPTREE_RETURN_IF_ERROR(CheckPlan(*engine_, plan));
      if (plan.options != job.save->rank_options) {
        return absl::InvalidArgumentError(
            absl::StrFormat("its options are %s, those of the coordinator %s",
                            job.save->rank_options, plan.options));
      }
      return plan;
    }
    if (job.save->cancelled()) return absl::CancelledError("it was cancelled");
    CKPTREE_RETURN_IF_ERROR(CheckOrder(job.call, begun, settled));
    if (kv::MonotonicNow() - std::max(begun, coordinator_.heard()) >
        options_.deadline) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "%s has not begun to save it after %s", coordinator_.Describe(),
          SecondsText(options_.deadline)));
    }
    backoff.Pause();
  }
}

// One call of the coordinator's may be one that this rank left out: they meet
// at the next.
absl::Status Member::CheckOrder(const StepCall& call, absl::Time begun,
                                std::uint64_t settled) const {
  const std::optional<StepCall>& working = coordinator_.working();
  if (!working.has_value() || *working == call) return absl::OkStatus();
  const bool later = working->first > call.first;
  const bool others = coordinator_.settled() >= settled + 2 &&
                      kv::MonotonicNow() - begun > options_.deadline;
  if (!later && !others) return absl::OkStatus();
  return OutOfOrder(working->first);
}

absl::Status Member::AwaitOutcome(const Job& job,
                                  const schema::RankPlan& plan) {
  const absl::Time handed = kv::MonotonicNow();
  Backoff backoff = WorkingBackoff();
  while (true) {
    mail_.Beat();
    const absl::Status alive = coordinator_.Poll();
    if (const RankMail* const mail = coordinator_.OutcomeOf(job.call)) {
      CKPTREE_RETURN_IF_ERROR(StatusOf(*mail));
      const auto rank = static_cast<std::size_t>(options_.rank);
      if (rank < mail->taken.size() && mail->taken[rank] == nonce_) {
        // The coordinator has read all up to this part.
        mail_.Forget(handed_at_);
        return absl::OkStatus();
      }
      return absl::AbortedError(absl::StrFormat(
          "step %d was saved with a part of another process that is rank %d",
          job.call.first, options_.rank));
    }
    if (!alive.ok()) return AskStore(plan, alive);
    // It saves one after the other: what became of this one is told no more.
    if (const std::optional<StepCall>& working = coordinator_.working();
        working.has_value() && *working != job.call) {
      return AskStore(plan, absl::UnavailableError(absl::StrFormat(
                                "%s is at step %d by now, and has not told",
                                coordinator_.Describe(), working->first)));
    }
    if (kv::MonotonicNow() - std::max(handed, coordinator_.heard()) >
        options_.deadline) {
      return AskStore(plan, absl::DeadlineExceededError(
                                coordinator_.Describe() + " is silent"));
    }
    backoff.Pause();
  }
}

// The store has the last word: a message may be lost, a commit not.
absl::Status Member::AskStore(const schema::RankPlan& plan,
                              const absl::Status& why) {
  const auto unknown = [&](const auto& what) {
    return absl::UnknownError(
        absl::StrFormat("step %d may or may not be saved: %s; %s", plan.step,
                        why.message(), what));
  };
  const kv::Database& database = engine_->database();
  absl::StatusOr<schema::StepRecord> record = absl::UnknownError("");
  const absl::Time end = kv::MonotonicNow() + kSyncWait;
  while (true) {
    if (const absl::Status seen = engine_->Refresh(); !seen.ok()) {
      return unknown(seen.message());
    }
    record = ReadVersion(database, plan.version);
    if (!record.ok() || database.newest_is_durable()) break;
    // It is there, but a power cut, or a sync that fails, may take it back.
    if (kv::MonotonicNow() > end) return unknown("its commit is not durable");
    absl::SleepFor(kLookEvery);
  }
  if (record.ok()) {
    const auto bytes = database.Get(schema::Space::kRecords,
                                    schema::StepMetaKey(plan.version));
    if (!bytes.ok() || !bytes->has_value()) {
      return unknown("its metadata cannot be read");
    }
    const absl::StatusOr<schema::StepMeta> meta =
        schema::DecodeStepMeta(**bytes);
    if (!meta.ok()) return unknown(meta.status().message());
    for (const schema::PartOrigin& origin : meta->origins) {
      if (origin.part != options_.rank || origin.nonce != nonce_) continue;
      // The folder does not tell what rank 0 waited for.
      if (places_.remote == nullptr &&
          options_.store.durable == Durable::kRemote) {
        return unknown("it is on the disk, and perhaps not in the remote yet");
      }
      return absl::OkStatus();
    }
    return absl::AbortedError(absl::StrFormat(
        "step %d was saved with a part of another process that is rank %d",
        plan.step, options_.rank));
  }
  const auto branch = ReadBranch(database, BranchOf(plan));
  // A later version may have been committed, removed and collected.
  // In a remote, rank 0 may ship later what it has on its disk.
  if (places_.remote == nullptr && branch.ok() && branch->has_value() &&
      (*branch)->tip < plan.version && database.session() > plan.session) {
    return absl::AbortedError(
        absl::StrFormat("step %d was not saved: %s", plan.step, why.message()));
  }
  return unknown("open the store to learn which");
}

}  // namespace ckptree::internal
