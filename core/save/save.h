// SPDX-License-Identifier: Apache-2.0

// One save from Begin() to its end: what its handle shows and what the writer
// works on.

#ifndef CKPTREE_CORE_SAVE_SAVE_H_
#define CKPTREE_CORE_SAVE_SAVE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/options.h"
#include "core/process/thread_limit.h"
#include "core/save/part_writer.h"
#include "core/save/staged_content.h"
#include "core/version/catalog.h"
#include "kv/process_mark.h"

namespace ckptree::schema {
struct RankPlan;
}

namespace ckptree::internal {

// Of a step that is saved once more, into another store: what its first save
// said of itself.
struct SaveOrigin {
  std::int64_t begun_ns = 0;
  std::int64_t staged_ns = 0;
  std::int64_t committed_ns = 0;
  std::vector<std::pair<std::string, std::string>> lineage;
};

// Thread-safe, but for the members of the writer.
class Save {
 public:
  Save(const BranchId& of_branch, std::int64_t to_step,
       const SaveOptions& options)
      : step(to_step),
        branch(of_branch.number),
        branch_id(of_branch),
        branch_name(options.branch),
        overwrite(options.overwrite),
        tagged(options.tagged),
        ignore_policy(options.ignore_policy),
        delete_later(options.delete_later),
        begun_ns(absl::ToUnixNanos(options.time.value_or(absl::Now()))) {}

  const std::int64_t step;
  const std::uint32_t branch;
  const BranchId branch_id;  // Of that number: the one that it began with.
  const std::string branch_name;
  const bool overwrite;
  const bool tagged;
  const bool ignore_policy;  // Whatever the policy says of it now.
  const bool delete_later;   // All later steps of its branch.
  const std::int64_t begun_ns;

  // Set by Commit(), before the writer sees the save; gone at its end.
  std::shared_ptr<StagedContent> content;
  std::shared_ptr<StagedContent> staged_content() const {
    absl::MutexLock lock(&mu_);
    return content;
  }
  std::uint64_t bytes_total = 0;
  std::uint64_t leaves_total = 0;
  std::vector<std::pair<std::string, double>> metrics;
  // Set before Commit(); nothing for a save that is its own.
  std::optional<SaveOrigin> origin;

  // Where several processes have the step between them (core/ranks): called at
  // the save's turn, on the write thread, instead of writing `content` alone.
  // `check` is to be asked while it waits: an error ends the save.
  using Gather = std::function<absl::StatusOr<std::vector<PartResult>>(
      const schema::RankPlan& plan,
      const std::function<absl::Status()>& check)>;
  Gather gather;
  std::uint32_t world = 1;   // How many processes.
  std::string rank_options;  // Of the plan.

  const kv::ProcessMark mark;

  // A manager tells of its failure: no call of the store needs to.
  std::atomic<bool> is_of_manager{false};

  SaveCounters counters;

  // Of the threads that hash and write it. Lifted when somebody waits for it.
  mutable ThreadLimit limit;

  // ---- the handle's side ----

  // For a handle and its copies, which share it. The save has a handle until
  // the last of them is gone, whoever of the engine holds the save.
  static std::shared_ptr<Save> ForHandle(std::shared_ptr<Save> save);
  bool HasHandle() const { return handles_.load() > 0; }

  absl::Status WaitStaged(absl::Duration timeout);
  // Until what was not lent is free, or the save is over.
  void WaitCopied();
  absl::Status WaitCommitted(absl::Duration timeout);
  // How it ended; kUnavailable before. Does not count as asking for a failure.
  absl::Status Result() const;
  // Until it is staged, or over; until it is over. False: it goes on. They see
  // no result.
  bool WaitStagedOrDone(absl::Duration timeout) const;
  bool WaitDone(absl::Duration timeout) const;
  bool Staged() const;
  bool Done() const;
  void OnCommitted(std::function<void(const absl::Status&)> callback);
  void OnDone(std::function<void()> callback);
  void Cancel();
  ckptree::Progress Progress() const;
  std::uint64_t version() const;
  absl::Status PolicyProblem() const;

  // ---- the writer's side ----

  void SetPhase(Progress::Phase phase);
  // The caller's memory is free; the part of it that was not lent is.
  void SetStaged();
  void SetCopied();
  // What is still to be copied out of the host's memory will not be.
  void SetCopyEnded();
  // Until one of these, or the end.
  void WaitCopyEnded();
  // Whether what was not lent is free: Commit() does not wait any more.
  bool Copied() const;
  std::int64_t staged_ns() const;
  bool cancelled() const { return cancelled_.load(); }
  // Step 6 begins: from now on cancelling is too late. False where the save was
  // cancelled before.
  bool EnterCommit();
  // Its step is committed, but the policy of its branch was not applied.
  void SetPolicyProblem(const absl::Status& problem);
  // The end; runs the callbacks. What one of them threw is returned.
  absl::Status Finish(const absl::Status& status, std::uint64_t version);
  // True if it failed and nobody was told.
  bool FailedUnseen() const;
  // Why it failed; counts as told.
  absl::Status TakeFailure();
  void PutFailureBack();

 private:
  void HurryUnless(bool (Save::*over)() const, absl::Duration timeout) const;
  bool StagedOrDone() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return staged_ || result_.has_value();
  }
  bool CopiedOrDone() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return copied_ || result_.has_value();
  }
  bool CopyEnded() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return copied_ || copy_ended_ || result_.has_value();
  }
  bool HasResult() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return result_.has_value();
  }

  std::atomic<bool> cancelled_{false};
  std::atomic<int> handles_{0};

  mutable absl::Mutex mu_;
  Progress::Phase phase_ ABSL_GUARDED_BY(mu_) = Progress::Phase::kQueued;
  bool staged_ ABSL_GUARDED_BY(mu_) = false;
  bool copied_ ABSL_GUARDED_BY(mu_) = false;
  bool copy_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool committing_ ABSL_GUARDED_BY(mu_) = false;
  std::int64_t staged_ns_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mu_);
  bool seen_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status policy_problem_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void(const absl::Status&)>> callbacks_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> endings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_SAVE_H_
