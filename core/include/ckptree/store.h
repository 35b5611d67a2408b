// SPDX-License-Identifier: Apache-2.0

// A store: one directory that holds every step of a training run.

#ifndef CKPTREE_STORE_H_
#define CKPTREE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/collect.h"
#include "ckptree/export.h"
#include "ckptree/options.h"
#include "ckptree/policy.h"
#include "ckptree/preservation.h"
#include "ckptree/save.h"
#include "ckptree/selector.h"
#include "ckptree/step.h"
#include "ckptree/usage.h"

namespace ckptree {

class CheckpointManager;

namespace internal {
class Engine;
struct StoreEngine;
}  // namespace internal

// A tag, and the step it names.
struct TagInfo {
  std::string name = {};
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::string branch = {};  // Empty: the main branch.
};

// A branch: a series of saves, each compared with the one before.
struct BranchInfo {
  std::string name = {};  // Empty: the main branch.
  // Of forks: where it goes on from; "?": a branch that was dropped.
  std::string origin_branch = {};
  std::int64_t origin_step = 0;
  absl::Time created = absl::UnixEpoch();
  std::uint64_t steps = 0;
};

// One problem that Verify found.
struct Finding {
  enum class Severity { kDamage, kInconsistent, kWarning };
  Severity severity = Severity::kDamage;
  std::string what = {};  // One line, names step, leaf, chunk or file.
  // Steps that it hurts, by branch and number, and what ParseSelector reads as
  // each of them ("7", "BRANCH/7").
  std::vector<std::int64_t> steps = {};
  std::vector<std::string> selectors = {};
  std::string leaf = {};  // Name; empty where not of one leaf.
};

struct VerifyOptions {
  enum class Level {
    kQuick,  // Records only: rows, trees, maps, segment rows.
    kFull,   // And every chunk that is referred to, against its digest.
    kDeep,   // And recomputes dead lists, statistics, tables, totals.
  };
  Level level = Level::kFull;
  std::vector<StepSelector> steps = {};  // Empty: all.
  // Checked between chunks; true stops with kCancelled.
  std::function<bool()> cancelled = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
};

struct VerifyReport {
  std::vector<Finding> findings = {};
  std::uint64_t steps = 0;
  std::uint64_t leaves = 0;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;  // Read and checked.
};

// What the store as a whole is.
struct StoreInfo {
  std::string directory = {};
  std::string uuid = {};  // 32 hexadecimal digits.
  int format = 0;
  absl::Time created = absl::UnixEpoch();
  std::string created_by = {};
  bool read_only = false;
  bool following = false;  // Reading beside a live writer.
  std::uint64_t commits = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::string> warnings = {};  // Met at open.
};

struct DeleteOptions {
  // Tagged steps, too, and their tags with them.
  bool tagged = false;
};

struct TagOptions {
  // Take the name from the step that has it. Without this, a name that is in
  // use for another step is kAlreadyExists.
  bool move = false;
};

// Thread-safe. One writer in one process at a time; any number of readers
// anywhere. In a forked child every call is kFailedPrecondition.
//
// The destructor waits for saves in flight and logs what failed unseen; Close()
// returns it.
class CKPTREE_EXPORT Store {
 public:
  // kAlreadyExists where there is a store; kInvalidArgument where the directory
  // holds anything else, or is one of another machine: see LocalPath().
  static absl::StatusOr<Store> Create(const std::string& directory,
                                      StoreOptions options = {});

  // kNotFound: no store there. kUnavailable: another writer, named by pid and
  // host. kDataLoss: acknowledged commits are missing; says which.
  // kFailedPrecondition: a newer format or unknown feature, by name and number.
  // kInvalidArgument: as above.
  static absl::StatusOr<Store> Open(const std::string& directory,
                                    StoreOptions options = {});

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  // Starts putting a step together. Its place among the saves is taken here.
  // Steps are >= 0; any order.
  StepBuilder Begin(std::int64_t step, SaveOptions options = {});

  // Opens a step for reading. kNotFound where nothing matches.
  absl::StatusOr<Step> OpenStep(const StepSelector& selector) const;

  // All steps of a branch, ascending by number; by default the main branch.
  absl::StatusOr<std::vector<StepInfo>> Steps(
      std::string_view branch = "") const;
  absl::StatusOr<StepInfo> Resolve(const StepSelector& selector) const;

  // Removes the step from the catalog, durably. Its bytes are freed in the
  // background, or by Collect().
  // kNotFound; kFailedPrecondition where it is pinned, or tagged.
  absl::Status Delete(const StepSelector& step,
                      const DeleteOptions& options = {}) {
    return Delete(std::vector<StepSelector>{step}, options);
  }
  absl::Status Delete(std::int64_t step, const DeleteOptions& options = {}) {
    return Delete(AtStep(step), options);
  }
  // All of them in one commit, or none.
  absl::Status Delete(const std::vector<StepSelector>& steps,
                      const DeleteOptions& options = {});

  // A name for a step; moving an existing name needs `move`.
  absl::Status Tag(std::string_view name, const StepSelector& step,
                   const TagOptions& options = {});
  absl::Status Tag(std::string_view name, std::int64_t step,
                   const TagOptions& options = {}) {
    return Tag(name, AtStep(step), options);
  }
  absl::Status Untag(std::string_view name);
  absl::StatusOr<std::vector<TagInfo>> Tags() const;

  // A pinned step is neither deleted nor overwritten.
  absl::Status Pin(const StepSelector& step);
  absl::Status Unpin(const StepSelector& step);
  absl::Status Pin(std::int64_t step) { return Pin(AtStep(step)); }
  absl::Status Unpin(std::int64_t step) { return Unpin(AtStep(step)); }

  // A new branch that goes on from `step`: saves to it (SaveOptions::branch)
  // share what they have in common with that step, and have numbers of their
  // own. kInvalidArgument: no such name can be (IsBranchName); kAlreadyExists.
  absl::Status Fork(const StepSelector& step, std::string_view branch);
  // Deletes the branch with all its steps; kFailedPrecondition where one is
  // pinned. The main branch stays.
  absl::Status DropBranch(std::string_view branch);
  // The main branch first.
  absl::StatusOr<std::vector<BranchInfo>> Branches() const;

  // Which steps of a branch live: from now on every save to it, by whatever
  // program, removes those that `policy` does not keep, in its own commit.
  // Pinned and tagged steps stay, and so does the newest of the branch; a save
  // below it that `policy` would not keep is kFailedPrecondition. Nothing is
  // removed by this call. kInvalidArgument: see Check(); or `policy` may keep
  // nothing of a run, as latest(0), steps(5), latest(3) & every(7).
  absl::Status SetPolicy(const Preservation& policy,
                         std::string_view branch = "");
  absl::StatusOr<PolicyInfo> Policy(std::string_view branch = "") const;
  // What the policy of the branch, or `policy`, keeps of the steps there are,
  // and why. Changes nothing. kFailedPrecondition where it cannot be applied.
  absl::StatusOr<PolicyReport> PreviewPolicy(
      std::string_view branch = "",
      const std::optional<Preservation>& policy = std::nullopt) const;
  // Removes now what the policy of the branch does not keep; returns it.
  absl::StatusOr<std::vector<std::int64_t>> ApplyPolicy(
      std::string_view branch = "");

  // Of the run, as JSON text; empty: none. At most 8 MiB.
  absl::Status SetMetadata(std::string json, std::string_view branch = "");
  absl::StatusOr<std::string> Metadata(std::string_view branch = "") const;

  // Frees now what no step needs any more. kCancelled where it was stopped:
  // what was freed stays freed. Saves and readers go on.
  absl::StatusOr<CollectReport> Collect(const CollectOptions& options = {});

  // What each step costs. Reads dead lists, no arrays.
  absl::StatusOr<UsageReport> Usage() const;
  // What deleting these steps would free: Delete() and Collect() free just
  // that.
  absl::StatusOr<FreedBytes> WouldFree(
      const std::vector<StepSelector>& steps) const;
  // The subtrees of one step down to `depth` keys; 0: the whole alone.
  absl::StatusOr<std::vector<SubtreeUsage>> Subtrees(const StepSelector& step,
                                                     int depth = 1) const;

  // Readers: lists the steps that were committed since the last look. Writers:
  // nothing to do.
  absl::Status Refresh();

  // Waits until every save begun so far is done; returns the first failure that
  // no handle returned.
  absl::Status Flush(absl::Duration timeout = absl::InfiniteDuration());

  // The result is OK where the check ran, whatever it found.
  absl::StatusOr<VerifyReport> Verify(const VerifyOptions& options = {}) const;

  StoreInfo Info() const;
  Stats GetStats() const;

  // Waits for saves in flight, then closes; a second call waits for the first.
  // Destroy steps and views first. kFailedPrecondition in a callback.
  absl::Status Close();

 private:
  friend class CheckpointManager;
  friend struct internal::StoreEngine;
  explicit Store(std::shared_ptr<internal::Engine> engine);
  std::shared_ptr<internal::Engine> engine_;
};

}  // namespace ckptree

#endif  // CKPTREE_STORE_H_
