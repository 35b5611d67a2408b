// SPDX-License-Identifier: Apache-2.0

// The manager of a training loop's steps: decides which are saved, keeps those
// that a policy wants, and resumes. Behaves as Orbax's CheckpointManager where
// python/manager_rows.md does not say otherwise.
//
//   auto manager = ckptree::CheckpointManager::Open(
//       "/runs/lm", {.save_interval_steps = 100, .max_to_keep = 3,
//                    .watch_sigterm = true});
//   for (std::int64_t step = first; step <= last; ++step) {
//     Train();
//     absl::StatusOr<bool> saved = manager->Save(
//         step, [&](ckptree::StepBuilder& builder) { return Fill(builder); });
//     if (manager->SavedForPreemption()) break;
//   }
//   absl::Status status = manager->Close();

#ifndef CKPTREE_MANAGER_H_
#define CKPTREE_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/options.h"
#include "ckptree/preservation.h"
#include "ckptree/save.h"
#include "ckptree/save_decision.h"
#include "ckptree/selector.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree {

class RankGroup;

struct ManagerOptions {
  // How the store is opened. With read_only nothing is saved, deleted or set.
  StoreOptions store = {.create_if_missing = true};
  std::string branch = {};  // The fork to work on; empty: the main branch.

  // ---- which steps are saved ----

  // Steps that this divides. Nothing: none because of their number.
  std::optional<std::int64_t> save_interval_steps = 1;
  std::vector<std::int64_t> save_on_steps = {};  // These as well.
  // Decides instead of both. With save_decision: kInvalidArgument.
  std::function<bool(std::int64_t step, std::optional<std::int64_t> latest)>
      should_save_fn = {};
  // Decides instead of all three. Without it the first step of a branch is
  // saved whatever its number, and one at a preemption.
  std::optional<SaveDecision> save_decision = {};
  // False: decisions see no save in progress.
  bool see_saves_in_progress = true;

  // ---- which steps live ----
  //
  // Where one of these is given, the policy of the branch is made of them:
  // keep_period, keep_time_interval and should_keep_fn keep steps in addition
  // to the latest, or best, max_to_keep (nothing: all; so where nothing but a
  // metric is given every step stays). Where none is: the policy of the store,
  // but one that came with the options of a program, which goes. The manager's
  // first save sets it: one that only reads changes nothing. kInvalidArgument:
  // should_keep_fn together with keep_period.

  std::optional<std::int64_t> max_to_keep = {};
  std::optional<std::int64_t> keep_period = {};  // Steps that it divides.
  std::optional<absl::Duration> keep_time_interval = {};  // Whole seconds.
  KeepFn should_keep_fn = {};
  // The best by a metric, or by a function of all metrics, stay instead of the
  // latest. The newest step also stays until a later one is saved.
  std::string best_metric = {};
  MetricFn best_fn = {};
  // Must be set where one of both is.
  std::optional<BestMode> best_mode = {};
  bool keep_checkpoints_without_metrics = true;
  // Instead of max_to_keep, keep_period, keep_time_interval, should_keep_fn.
  std::optional<Preservation> preservation = {};

  // ---- the rest ----

  // Of the run, JSON; written once, to a branch that has none.
  std::string metadata = {};
  // SIGTERM is a preemption: a handler is set while the manager lives, which
  // calls the one that was there.
  bool watch_sigterm = false;
  // Save() waits until fewer are in flight.
  int max_saves_in_flight = 1;
  // How long Save() waits for that.
  absl::Duration save_timeout = absl::Minutes(20);
  // Null: the wall clock. What policies see is stored with each step.
  std::function<absl::Time()> clock = {};
};

// What a step has in addition to its values.
struct SaveArguments {
  std::vector<std::pair<std::string, double>> metrics = {};
  std::string custom_metadata = {};  // JSON.
  std::string note = {};
  // Save whatever the decision is, also before the latest step.
  bool force = false;
  // Take the place of a step that exists, whatever the decision is; without it
  // `force` makes that kAlreadyExists. Of a step that is not there it says
  // nothing. One that has a tag or a pin is kFailedPrecondition.
  bool overwrite = false;
  // Asked now and then, on the thread of the call, while it waits for earlier
  // saves: true makes it kCancelled, and nothing is saved.
  std::function<bool()> cancelled = {};
};

// A top-level subtree of a step, as "params" and "opt_state".
struct ItemInfo {
  std::string name = {};  // In text form.
  std::string kind = {};  // "tree", "json", "proto", "files"
  std::vector<LeafInfo> leaves = {};
};

// Which saves are waited for: those of one manager, or of everybody who saves
// to its store in this process.
enum class SavesOf { kManager, kStore };

// kInvalidArgument: options that mean nothing or contradict each other.
CKPTREE_EXPORT absl::Status Check(const ManagerOptions& options);

// Errors of saves in the background come out of the next Save(), BeginSave(),
// WaitUntilFinished(), CheckForErrors() or Close(), each once; a step that
// failed is never listed. A policy that could not be applied is such an error,
// too: its step is there, and nothing was removed.
//
// A manager that was moved from can only be destroyed and assigned to.
//
// Several managers may work on one open store: see Over(). Each decides what it
// saves by itself, and sees the saves to its branch that are in flight, whoever
// began them, as it sees committed steps. Each is told of the failures of its
// own saves, and nobody else is, not by Store::Flush() either. Each saves a
// step of its own at a preemption. A branch has one policy at a time: that of
// the manager that began a save to it last. What is set by hand after a manager
// was opened stays for that manager's saves.
//
// The first time that a manager does not save a step because it is not after
// the latest one, it logs a warning.
//
// Thread-safe, but for Close().
class CKPTREE_EXPORT CheckpointManager {
 public:
  // kInvalidArgument: see Check(). As Store::Open() otherwise: kUnavailable
  // also where this process has the store open, see Over().
  static absl::StatusOr<CheckpointManager> Open(const std::string& directory,
                                                ManagerOptions options = {});
  // A manager over a store that is open, beside whatever else uses it. The
  // store stays open as long as `store` or a manager over it is there, or until
  // Store::Close(), after which each call of the manager but Close() is
  // kFailedPrecondition.
  // kFailedPrecondition: an option of `options.store` that is not the usual one
  // differs from what the store was opened with, or `max_saves_in_flight` is
  // more than its; both values are named. How the store is opened (`lock_wait`,
  // `create_if_missing`) does not matter any more. With `read_only` the manager
  // reads only.
  static absl::StatusOr<CheckpointManager> Over(const Store& store,
                                                ManagerOptions options = {});
  // A manager of one rank among several: each has one, and calls ShouldSave(),
  // Save(), ReachedPreemption(step), Delete(), DeleteAfter() and ForkFrom()
  // for the same steps in the same order. What hangs on more than the number
  // of a step (clocks, metrics, functions, the latest step, saves in flight,
  // preemptions, `force`) rank 0 decides, and tells: of the other ranks no
  // option of this kind counts. Where its options say no to a step of that
  // number, nobody waits for it.
  //
  // A rank waits for rank 0's word as long as RankOptions::deadline:
  // kUnavailable then, as where a rank did not come to a save. A save that
  // failed is told on every rank by its next Save() that asks rank 0.
  // A preemption that comes to any rank is passed on by its next call, and told
  // by rank 0 at a step: with its watch_sigterm, of which it is asked then at
  // each step, at the next one; without, at the next that its options name.
  // The policy is applied by rank 0; reading works on every rank, which sees
  // what was committed by the group. The group must be open as long as it is
  // used.
  // kInvalidArgument and kFailedPrecondition as above, of this rank, or of rank
  // 0; where it is of this rank, the saves of the others fail with it.
  static absl::StatusOr<CheckpointManager> Over(const RankGroup& group,
                                                ManagerOptions options = {});
  CheckpointManager(CheckpointManager&&) noexcept;
  CheckpointManager& operator=(CheckpointManager&&) noexcept;
  // Waits for saves in flight.
  ~CheckpointManager();

  // ---- saving ----

  // False for a step that is not after the latest one, saved or in flight,
  // whatever the decision would be. kInternal where a function threw.
  // `cancelled`: over ranks, as that of SaveArguments.
  absl::StatusOr<bool> ShouldSave(
      std::int64_t step, const std::function<bool()>& cancelled = {}) const;

  // Where the step is to be saved: `fill` puts it together (its error fails
  // this call, and nothing is saved), the save begins, and goes on in the
  // background. False: not to be saved; `fill` was not called. As after
  // StepBuilder::Commit() arrays may be changed at once, but those that were
  // lent: these stay lent until LastSave().WaitStaged().
  // At a preemption the call returns when the step is committed.
  absl::StatusOr<bool> Save(std::int64_t step,
                            absl::FunctionRef<absl::Status(StepBuilder&)> fill,
                            const SaveArguments& arguments = {});
  // The same in two halves. Nothing: not to be saved.
  absl::StatusOr<std::optional<StepBuilder>> BeginSave(
      std::int64_t step, const SaveArguments& arguments = {});
  // Of a builder that BeginSave() returned; kInvalidArgument, and nothing is
  // saved, where it is of another store.
  absl::Status EndSave(StepBuilder builder);
  // As EndSave(), and no array may be changed before LastSave().WaitStaged().
  absl::Status SubmitSave(StepBuilder builder);
  // In place of Save(), over ranks, where this one has nothing to save for that
  // step: asks as Save() would, and where the step is to be saved it fails on
  // all ranks because of `why`, which this manager does not tell again. What
  // failed before stays to be told. Without ranks it does nothing.
  absl::Status GiveUpSave(std::int64_t step, const absl::Status& why,
                          const SaveArguments& arguments = {});
  // Of the save that was begun last. What its handle tells of a failure the
  // manager tells as well, once.
  SaveHandle LastSave() const;

  // The first error that nobody saw; kDeadlineExceeded: saves go on.
  absl::Status WaitUntilFinished(
      absl::Duration timeout = absl::InfiniteDuration());
  // Until no save of the manager, or of the whole store, is in flight; what
  // failed stays to be told.
  absl::Status WaitForSaves(
      SavesOf whose, absl::Duration timeout = absl::InfiniteDuration()) const;
  absl::Status CheckForErrors();
  // Of its own saves.
  bool IsSavingInProgress() const;

  // ---- preemption ----

  // From now on: for whoever is told by other means than SIGTERM.
  void RequestPreemption();
  bool ReachedPreemption() const;
  // Over ranks: asks rank 0, so that each of them learns it at the same step.
  absl::StatusOr<bool> ReachedPreemption(
      std::int64_t step, const std::function<bool()>& cancelled = {}) const;
  // True once the step of the preemption is committed: time to leave.
  bool SavedForPreemption() const;

  // ---- reading ----

  // Opens a step for reading: of the manager's branch where the selector names
  // none. BestByPolicy() is BestStep(), and Latest() on a branch without a step
  // is the step that the branch goes on from. Waits for saves in flight to the
  // store, as long as save_timeout. With `items` these top-level subtrees must
  // be there: kNotFound names those that are.
  absl::StatusOr<Step> OpenStep(
      StepSelector step = Latest(),
      const std::vector<std::string>& items = {}) const;
  // Committed steps, ascending.
  absl::StatusOr<std::vector<std::int64_t>> AllSteps() const;
  absl::StatusOr<std::optional<std::int64_t>> LatestStep() const;
  // By the best metric of the options, their `preservation` among them, also
  // before the first save and where nothing is saved; without such options, or
  // where a policy was set by hand since, by that of the branch's policy. The
  // latest where there is none; nothing where no step has it.
  absl::StatusOr<std::optional<std::int64_t>> BestStep() const;
  absl::StatusOr<std::vector<std::pair<std::string, double>>> Metrics(
      std::int64_t step) const;
  absl::StatusOr<std::vector<ItemInfo>> ItemMetadata(std::int64_t step) const;
  // Readers: lists the steps that were committed since the last look.
  absl::Status Reload();

  // ---- changing ----

  // `cancelled`, of all three: over ranks, as that of SaveArguments. A rank
  // that it stopped has not heard of the change, which rank 0 may still make:
  // the same call once more hears of it.
  //
  // kNotFound; kFailedPrecondition: pinned, or tagged.
  absl::Status Delete(std::int64_t step, const DeleteOptions& options = {},
                      const std::function<bool()>& cancelled = {});

  // To go on from an older step one says what becomes of the later ones. Waits
  // for saves in flight to the store.
  //
  // Deletes them, all or (where one is pinned, or tagged) none.
  absl::Status DeleteAfter(std::int64_t step, const DeleteOptions& options = {},
                           const std::function<bool()>& cancelled = {});
  // Leaves them on their branch, and goes on on a new one, with the same
  // policy.
  absl::Status ForkFrom(std::int64_t step, std::string_view branch,
                        const std::function<bool()>& cancelled = {});

  const std::string& directory() const;
  std::string branch() const;
  Store& store();

  // Waits for its saves in flight and closes, whatever comes, the store, too,
  // where the manager opened it; the first error that nobody saw.
  absl::Status Close();

 private:
  struct CKPTREE_LOCAL Impl;
  explicit CheckpointManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree

#endif  // CKPTREE_MANAGER_H_
