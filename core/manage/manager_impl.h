// SPDX-License-Identifier: Apache-2.0

// The state of a CheckpointManager.

#ifndef CKPTREE_CORE_MANAGE_MANAGER_IMPL_H_
#define CKPTREE_CORE_MANAGE_MANAGER_IMPL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/manager.h"
#include "core/engine/engine.h"
#include "core/engine/policy_turns.h"
#include "core/manage/manager_policies.h"
#include "core/manage/manager_ranks.h"
#include "core/manage/preemption.h"
#include "core/process/guarded_call.h"

namespace ckptree {
namespace internal {

// What a decision needs to know of a step.
struct BegunSave {
  std::int64_t step = 0;
  absl::Time time;
  std::vector<std::pair<std::string, double>> metrics;
  bool healthy = false;  // As is known once it is committed.

  PolicyStep AsPolicyStep() const {
    return {.step = step, .time = time, .metrics = metrics, .healthy = healthy};
  }
};

}  // namespace internal

struct CheckpointManager::Impl {
  Impl(Store opened, ManagerOptions given, bool owns)
      : store(std::move(opened)),
        own_store(owns),
        options(std::move(given)),
        decision(internal::DecisionOf(options)),
        limit(internal::LimitOf(options)),
        branch(options.branch) {
    if (options.watch_sigterm) watch.emplace();
  }

  ~Impl() {
    if (!engine().forked()) LeaveTurns();
  }

  internal::Engine& engine() const { return *store.engine_; }
  bool read_only() const { return options.store.read_only; }
  // Its saves bring the branch its policy; not where rank 0 does that.
  bool sets_policy() const {
    return !read_only() && (ranks == nullptr || ranks->decides());
  }
  // kInternal where the clock of the options threw.
  absl::StatusOr<absl::Time> Now() const {
    absl::Time now = absl::Now();
    if (options.clock == nullptr) return now;
    CKPTREE_RETURN_IF_ERROR(
        internal::GuardedCall("clock", [&] { now = options.clock(); }));
    return now;
  }

  // Ok where the store is open and the manager is.
  absl::Status CheckUsable() const;

  // ---- beside other managers: manager_sharing.cc ----

  absl::Status SetUp();
  // Makes the policy of the branch that of the options; returns what it has
  // then.
  absl::StatusOr<internal::PolicyTurns::Turn> SetPolicy(
      const std::string& name);
  // Makes a branch, with this manager's policy.
  absl::Status Fork(std::int64_t step, std::string_view name);
  // It is on a branch that it has made, with that policy.
  void NoteFork(const std::string& name, const PolicyInfo& policy);
  // Before a save: makes the policy of the branch that of the options, where
  // nobody set one by hand since this manager was opened.
  absl::Status TakeTurn();
  void LeaveTurns();
  // Whether the policy of the branch, which is `known`, gives way to that of
  // the options at this manager's next save: nobody set it by hand since this
  // was opened. `brought`: by whom one came last, not this manager; or null.
  // `created_ns`: of the branch.
  bool Gives(const internal::PolicyTurns::Turn* brought,
             const PolicyInfo& known, std::int64_t created_ns) const;
  // What says which step is the best, beside the options: the policy that the
  // branch has from this manager's next save on; of one that saves nothing,
  // the one that it was given.
  absl::StatusOr<Preservation> PolicyToJudgeBy() const;

  std::string Branch() const {
    const absl::MutexLock lock(&mu);
    return branch;
  }

  // Notes how the saves that are over ended.
  void Settle() const;

  // The first error of a save that was not told yet.
  absl::Status NextError() const;
  // That, else why the policy was not applied last.
  absl::Status NextProblem() const;

  // Until at most `most` saves are in flight. Their errors stay to be told.
  absl::Status WaitForRoom(std::size_t most, absl::Duration timeout,
                           const std::function<bool()>& cancelled = {}) const;
  // Until the save is over, however it ended.
  static absl::Status WaitForSave(SaveHandle& save, absl::Time deadline);

  // Nobody asks this manager how its saves end any more.
  void LeaveSaves();

  // For the saves that are in flight now: its own, or all of the store.
  absl::Status WaitForOwn(absl::Duration timeout) const;
  absl::Status WaitForAll(absl::Duration timeout) const;
  // For all, as long as save_timeout; not in a callback of the store, which one
  // of them waits for.
  absl::Status WaitToRead() const;

  // Saves to the branch that are in flight, whoever began them.
  std::vector<internal::BegunSave> AllInFlight() const;

  // kNotFound where somebody dropped the branch.
  absl::Status CheckBranch() const;

  // The last step, saved or in flight.
  absl::StatusOr<std::optional<internal::BegunSave>> LatestBegun() const;

  StepSelector OnBranch(StepSelector selector) const;

  bool Preempted() const;
  // Asked for, and no step is saved for it yet.
  bool MustSaveForPreemption() const;
  bool SavedForPreemption() const;

  // Of this process, or of rank 0.
  absl::StatusOr<std::optional<StepBuilder>> BeginSave(
      std::int64_t step, const SaveArguments& arguments);

  // ---- among several ranks: manager_group.cc ----

  // As BeginSave(), on each rank.
  absl::StatusOr<std::optional<StepBuilder>> BeginAmong(
      std::int64_t step, const SaveArguments& arguments);
  // The part of this rank, of a step that rank 0 saves.
  absl::StatusOr<StepBuilder> BeginPart(std::int64_t step,
                                        const SaveArguments& arguments);
  absl::StatusOr<bool> ShouldSaveAmong(
      std::int64_t step, const std::function<bool()>& cancelled) const;
  // Ends a step that cannot be saved, on all ranks; returns `why`.
  absl::Status GiveUp(StepBuilder builder, const absl::Status& why);
  // `change` of the store, which rank 0 makes, and all of them see.
  absl::Status Change(std::string_view call, std::int64_t step,
                      const std::function<bool()>& cancelled,
                      absl::FunctionRef<absl::Status()> change) const;
  // Rank 0 hears of a preemption that came to this one.
  void PassOnPreemption() const;
  absl::StatusOr<internal::ManagerRanks::Decision> Decided(bool yes) const;

  // `waits`: until the caller may change its arrays.
  absl::Status EndSave(StepBuilder builder, bool waits);

  enum class Asked { kWhether, kToSave };
  absl::StatusOr<bool> Decide(std::int64_t step, absl::Time now,
                              Asked asked) const;
  // Committed, or in flight.
  bool IsThere(std::int64_t step) const;
  // Says once that a step was left out for not being after the latest.
  void WarnOfEarlier(std::int64_t step, std::int64_t latest) const;
  // Of a save that begins: says once that steps which were to go stay, as
  // none has the metric that chooses among them.
  void WarnOfUnmeasured(
      const std::vector<std::pair<std::string, double>>& metrics);

  Store store;
  const bool own_store;  // Close() closes it.
  // Of one rank among several, from before SetUp() on; null: of a process that
  // decides alone.
  std::unique_ptr<internal::ManagerRanks> ranks;
  // The policy that the branch had when this was opened.
  internal::PolicyTurns::Turn found;
  mutable std::atomic<bool> warned{false};
  const ManagerOptions options;
  const SaveDecision decision;
  // Chooses steps by a metric, and keeps those without it.
  const std::optional<BestN> limit;
  std::optional<internal::SigtermWatch> watch;

  mutable absl::Mutex mu;
  std::string branch ABSL_GUARDED_BY(mu);
  // Lists, as what is in one stays there where another finds no room.
  mutable std::list<SaveHandle> in_flight ABSL_GUARDED_BY(mu);  // Its own.
  mutable std::list<absl::Status> errors ABSL_GUARDED_BY(mu);
  mutable absl::Status policy_problem ABSL_GUARDED_BY(mu);
  SaveHandle last ABSL_GUARDED_BY(mu);
  bool preemption_requested ABSL_GUARDED_BY(mu) = false;
  bool saved_for_preemption ABSL_GUARDED_BY(mu) = false;
  std::optional<SaveHandle> for_preemption ABSL_GUARDED_BY(mu);
  bool closed ABSL_GUARDED_BY(mu) = false;
  // Saves without the metric of `limit`; none where one had it, or it was said.
  std::optional<std::int64_t> unmeasured ABSL_GUARDED_BY(mu) = 0;
};

}  // namespace ckptree

#endif  // CKPTREE_CORE_MANAGE_MANAGER_IMPL_H_
