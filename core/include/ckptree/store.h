// SPDX-License-Identifier: Apache-2.0

// A store: one directory that holds every step of a training run.
//
//   absl::StatusOr<ckptree::Store> store =
//       ckptree::Store::Open("/runs/lm", {.create_if_missing = true});
//   ckptree::StepBuilder step = store->Begin(100);           // save.h
//   absl::StatusOr<ckptree::Step> read =
//       store->OpenStep(ckptree::Latest());                  // step.h
//   absl::Status status = store->SetPolicy(ckptree::LatestN{3});
//   status = store->Close();

#ifndef CKPTREE_STORE_H_
#define CKPTREE_STORE_H_

#include <cstddef>
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
  // The save of that step that it goes on from: another one may have taken its
  // number since, or none is there any more.
  std::uint64_t origin_version = 0;
  absl::Time created = absl::UnixEpoch();
  std::uint64_t steps = 0;
};

// One problem that Verify found.
struct Finding {
  enum class Severity {
    kDamage,        // Bytes that are not those that were written.
    kInconsistent,  // Records that contradict each other.
    kWarning,       // Nothing is lost, and something is not as it should be.
  };
  Severity severity = Severity::kDamage;
  std::string what = {};  // One line, names step, leaf, chunk or file.
  // Steps that it hurts, by branch and number, and what ParseSelector reads as
  // each of them ("7", "BRANCH/7").
  std::vector<std::int64_t> steps = {};
  std::vector<std::string> selectors = {};
  std::string leaf = {};  // Name; empty where not of one leaf.
};

// "damage", "inconsistent" or "warning".
CKPTREE_EXPORT std::string_view Name(Finding::Severity severity);

struct VerifyOptions {
  enum class Level {
    kQuick,  // Records only: rows, trees, maps, segment rows.
    kFull,   // And every chunk that is referred to, against its digest; headers
             // and tables of segments, both copies of leaf records.
    kDeep,   // And every file whole; recomputes dead lists, statistics, tables,
             // totals.
  };
  Level level = Level::kFull;
  std::vector<StepSelector> steps = {};  // Empty: all.
  // Asked between rows and between chunks, one call at a time, on the thread of
  // the call or one that works for it; true stops with kCancelled. Must not
  // call the store, which holds collections back.
  std::function<bool()> cancelled = {};
  // In bytes, between chunks and after each step; a deep check counts files
  // in addition, each when it was checked. Called like `cancelled`.
  // Where the store is looked at again it begins anew.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
};

// What a check read, and what it found.
struct VerifyReport {
  std::vector<Finding> findings = {};  // Empty: nothing is wrong.
  std::uint64_t steps = 0;
  std::uint64_t leaves = 0;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;  // Read and checked.
  // Why nothing was learned of what lies in an object store alone, which is a
  // warning among the findings, too; empty: all that there is was looked at.
  std::string not_looked_at = {};
};

// What the store as a whole is.
struct StoreInfo {
  std::string directory = {};
  std::string uuid = {};  // 32 hexadecimal digits.
  int format = 0;         // Number of the format on disk: schema/FORMAT.md.
  absl::Time created = absl::UnixEpoch();
  std::string created_by = {};
  bool read_only = false;
  bool following = false;         // Reading beside a live writer.
  std::uint64_t commits = 0;      // Since the store was created.
  std::uint64_t incarnation = 0;  // How often it was opened for writing.
  std::string remote = {};        // Its address; empty: none.
  std::uint64_t unshipped = 0;    // Commits that are not there yet.
  // The address that the directory was last shipped to, also where it is open
  // without a remote: the object store then follows at the next open with it.
  std::string shipped_to = {};
  // Of array bytes that left this disk (StoreOptions::local_keep): they are in
  // the remote alone.
  std::uint64_t far_bytes = 0;
  // What was wrong at the open and was mended or did no harm, a line each.
  std::vector<std::string> warnings = {};
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

// One open store.
//
// Writers and readers: one process at a time has a store open for writing; any
// number of processes, on this host or on others that see the directory, read
// it at the same time. A reader changes nothing of what is stored, says in a
// small file which steps it has open, and never waits for the writer. It sees
// the steps that were committed when it was opened; Refresh() takes it further.
//
// Threads: every call may be made from any thread at any time, but for the
// destructor, moves and Close(). Callbacks run on threads of the store; they
// may read, and may begin saves, and must not wait for one.
//
// Crashes: what a call acknowledged survives the end of the process and of the
// machine. A store that was not closed opens with all its committed steps.
//
// Errors: a call that fails has changed nothing, where its comment does not say
// otherwise. A disk that fails in the middle of a commit makes the store refuse
// further commits (kUnknown, then kFailedPrecondition): open it again.
//
// In a forked child every call is kFailedPrecondition; the parent is not
// affected. A store that was moved from can be destroyed and assigned to; any
// other use of it ends the program with a message.
class CKPTREE_EXPORT Store {
 public:
  // Makes a new store in a directory that has none, or is absent while the
  // folder above it is there, and opens it for writing. What others have there
  // stays. kAlreadyExists where there is a store; kInvalidArgument where it may
  // be checkpoints of another kind, or the directory is one of another machine:
  // see StoreOptions::create_if_missing, LocalPath(). kNotFound: no folder is
  // above it.
  static absl::StatusOr<Store> Create(const std::string& directory,
                                      StoreOptions options = {});

  // Opens a store, for writing unless options.read_only. An open for writing
  // finishes what a crash left undone, and mends what is damaged and can be
  // made anew from the store's second copies; Info().warnings tells.
  // kNotFound: there is no store. kUnavailable: another process writes to it,
  // named by pid and host; StoreOptions::lock_wait waits for it. kDataLoss:
  // acknowledged commits are missing, and the message says which: see
  // repair.h. kFailedPrecondition: a newer format or a feature that this
  // library does not know, by name and number. kInvalidArgument: as Create().
  //
  // To read, also the address of a store in an object store (see
  // StoreOptions::remote): as it is there now, fetched to a folder below
  // $XDG_CACHE_HOME or ~/.cache, which keeps it for the next open. Refresh()
  // fetches what is new.
  static absl::StatusOr<Store> Open(const std::string& directory,
                                    StoreOptions options = {});

  Store(Store&&) noexcept;
  // Closes the store that was here, as its destructor would.
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Waits for saves in flight, and logs failures that nobody asked for: Close()
  // returns them. Steps, views and builders must be gone by then. In a callback
  // of the store, for which it would wait, it returns at once: a thread of its
  // own closes the store, which holds its directory until then. A store that
  // is still open when the program ends by exit() or a return from main(), as a
  // global or one that nobody deletes, is closed there; exit() must not be
  // called in a callback.
  ~Store();

  // ---- saving ----

  // Begins to put a step together; nothing is written before its Commit(), and
  // no other save waits for it. Steps are numbers of 0 and more, in any order.
  // What is wrong (a number that exists, a branch that does not, a store that
  // is read only) comes out of StepBuilder::status() and of the handle. So does
  // the failure of an earlier save whose handle was dropped before anybody
  // asked for it, once, and this step is not saved then: so a loop that looks
  // at nothing but the newest handle learns of each failure. Begin it again.
  StepBuilder Begin(std::int64_t step, SaveOptions options = {});

  // Waits until a save can be committed to at once: until fewer are in flight
  // than StoreOptions::max_saves_in_flight. kDeadlineExceeded after `timeout`.
  absl::Status WaitForRoom(absl::Duration timeout = absl::InfiniteDuration());

  // Waits until every save that was committed to before this call is over;
  // returns the first failure that nobody asked for. kDeadlineExceeded: the
  // saves go on.
  absl::Status Flush(absl::Duration timeout = absl::InfiniteDuration()) {
    return Flush(SavesBegun(), timeout);
  }
  // The same a moment at a time: of the first `saves` that were committed to,
  // and not of those that others begin in between.
  absl::Status Flush(std::uint64_t saves, absl::Duration timeout);
  // How many saves were committed to since the store was opened.
  std::uint64_t SavesBegun() const;

  // As Flush(), and leaves failures to those who ask for them. OK at once in a
  // store that only reads, and in a function that a save calls, which would
  // wait for itself.
  absl::Status WaitForSaves(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // Waits until every commit before this call is in StoreOptions::remote, and
  // what an open finds missing there, behind the first of them, is there again.
  // kDeadlineExceeded: it goes on, and the message says what keeps it.
  // kFailedPrecondition: there is no remote, or another process took it over,
  // and the message says who; nothing more is shipped then.
  absl::Status WaitReplicated(
      absl::Duration timeout = absl::InfiniteDuration());

  // ---- reading ----

  // Opens a step for reading; reads no array. kNotFound where nothing matches.
  absl::StatusOr<Step> OpenStep(const StepSelector& selector) const;
  absl::StatusOr<Step> OpenStep(std::int64_t step) const {
    return OpenStep(AtStep(step));
  }

  // All steps of a branch, ascending by number; by default the main branch.
  absl::StatusOr<std::vector<StepInfo>> Steps(
      std::string_view branch = "") const;
  // Their numbers alone, which costs a tenth of that.
  absl::StatusOr<std::vector<std::int64_t>> StepNumbers(
      std::string_view branch = "") const;
  // Those `count` of them with the highest numbers, ascending; fewer where
  // there are fewer. A reader of a long run reads no others for it.
  absl::StatusOr<std::vector<StepInfo>> NewestSteps(
      std::size_t count, std::string_view branch = "") const;
  // The step that `selector` means now. kNotFound where nothing matches.
  absl::StatusOr<StepInfo> Resolve(const StepSelector& selector) const;

  // For readers: lists the steps that were committed since the open or the last
  // Refresh(). Cheap where there are none. Writers have nothing to do. Of a
  // store that is read by its address, a step that is open and was deleted
  // there cannot be read from then on: no writer there knows who reads.
  // kFailedPrecondition: another store stands in that directory by now, or a
  // copy of it without what was seen; this one shows what it had, to be opened
  // anew.
  absl::Status Refresh();

  // Whether a read may wait for an object store: the store is read by its
  // address, or array bytes left this disk (StoreOptions::local_keep). Quick.
  bool MayReadRemote() const;

  // ---- deleting ----

  // Removes the step, durably: no listing shows it from then on. Steps that are
  // open for reading stay readable. Its bytes are freed in the background, or
  // by Collect(), as far as no other step needs them. kNotFound;
  // kFailedPrecondition where it is pinned, or tagged (see DeleteOptions).
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

  // Frees now what no step needs any more, on this thread and the store's.
  // Saves and readers go on. kCancelled where it was stopped: what was freed
  // stays freed. At a full disk it frees what it can; the report says the rest.
  absl::StatusOr<CollectReport> Collect(const CollectOptions& options = {});

  // ---- tags and pins ----

  // Gives a step a name, by which `@name` selects it. A tagged step is not
  // deleted, neither by policies. kAlreadyExists: the name is another step's.
  absl::Status Tag(std::string_view name, const StepSelector& step,
                   const TagOptions& options = {});
  absl::Status Tag(std::string_view name, std::int64_t step,
                   const TagOptions& options = {}) {
    return Tag(name, AtStep(step), options);
  }
  // kNotFound where there is no such tag. The step itself stays.
  absl::Status Untag(std::string_view name);
  absl::StatusOr<std::vector<TagInfo>> Tags() const;  // By name.

  // A pinned step is neither deleted nor overwritten, by nobody. Doing it twice
  // is no error.
  absl::Status Pin(const StepSelector& step);
  absl::Status Unpin(const StepSelector& step);
  absl::Status Pin(std::int64_t step) { return Pin(AtStep(step)); }
  absl::Status Unpin(std::int64_t step) { return Unpin(AtStep(step)); }

  // ---- branches ----

  // Makes a branch that goes on from `step`. Its steps have numbers of their
  // own, and share with `step` what they have in common with it. Save to it
  // with SaveOptions::branch. kInvalidArgument: not a name (IsBranchName);
  // kAlreadyExists.
  absl::Status Fork(const StepSelector& step, std::string_view branch);
  absl::Status Fork(std::int64_t step, std::string_view branch) {
    return Fork(AtStep(step), branch);
  }
  // Deletes a branch with all its steps. kFailedPrecondition where one of them
  // is pinned, or tagged (see DeleteOptions); kInvalidArgument for the main
  // branch, which cannot be removed.
  absl::Status DropBranch(std::string_view branch,
                          const DeleteOptions& options = {});
  // The main branch first, then in the order in which they were made.
  absl::StatusOr<std::vector<BranchInfo>> Branches() const;

  // ---- policies ----

  // Says which steps of a branch live. From now on every save to it, by
  // whatever program, removes in its own commit the steps that `policy` does
  // not keep. Pinned and tagged steps live on, and so does the newest step of
  // the branch. Removes nothing by itself: see ApplyPolicy().
  // kInvalidArgument: see Check(const Preservation&), or a policy that may keep
  // nothing of a run, as latest(0), steps(5), latest(3) & every(7).
  absl::Status SetPolicy(const Preservation& policy,
                         std::string_view branch = "");
  absl::StatusOr<PolicyInfo> Policy(std::string_view branch = "") const;
  // What the policy of the branch, or `policy`, keeps of the steps there are,
  // and why. Changes nothing. kFailedPrecondition where it cannot be applied.
  absl::StatusOr<PolicyReport> PreviewPolicy(
      std::string_view branch = "",
      const std::optional<Preservation>& policy = std::nullopt) const;
  // Removes now what the policy of the branch does not keep, in one commit;
  // returns the numbers of these steps.
  absl::StatusOr<std::vector<std::int64_t>> ApplyPolicy(
      std::string_view branch = "");

  // ---- the run ----

  // JSON of the caller's own, of the whole run, at most 8 MiB; empty: none.
  // Replaces what was there.
  absl::Status SetMetadata(std::string json, std::string_view branch = "");
  absl::StatusOr<std::string> Metadata(std::string_view branch = "") const;

  // What each step costs. Reads records, no arrays.
  absl::StatusOr<UsageReport> Usage() const;
  // What deleting these steps would free: Delete() and Collect() free just
  // that.
  absl::StatusOr<FreedBytes> WouldFree(
      const std::vector<StepSelector>& steps) const;
  // The same of DropBranch(): what is kept only as the branch goes on from it
  // is freed, too. kInvalidArgument for the main branch.
  absl::StatusOr<FreedBytes> WouldFreeBranch(std::string_view branch) const;
  // The subtrees of one step down to `depth` keys; 0: the whole alone.
  absl::StatusOr<std::vector<SubtreeUsage>> Subtrees(const StepSelector& step,
                                                     int depth = 1) const;

  // Checks the store against its digests and its own rules. OK where the check
  // ran, whatever it found: see VerifyReport::findings. Changes nothing.
  absl::StatusOr<VerifyReport> Verify(const VerifyOptions& options = {}) const;

  StoreInfo Info() const;
  // Counts since this store was opened.
  Stats GetStats() const;

  // Waits for saves in flight, then closes; a second call waits for the first.
  // With a remote it waits for that, too, StoreOptions::remote_timeout at most:
  // what is not there by then is shipped by the next open. Returns the first
  // failure that nobody asked for; the store is closed all the same. Steps and
  // views must be gone by then. kFailedPrecondition, and nothing is closed,
  // where a callback of this store calls it.
  absl::Status Close();

 private:
  friend class CheckpointManager;
  friend struct internal::StoreEngine;
  explicit Store(std::shared_ptr<internal::Engine> engine);
  // Ends the program where the store was moved from.
  const std::shared_ptr<internal::Engine>& engine() const;
  std::shared_ptr<internal::Engine> engine_;
};

}  // namespace ckptree

#endif  // CKPTREE_STORE_H_
