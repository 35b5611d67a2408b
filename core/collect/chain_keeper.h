// SPDX-License-Identifier: Apache-2.0

// Who needs which version right now, and which one is being collected.

#ifndef CKPTREE_CORE_COLLECT_CHAIN_KEEPER_H_
#define CKPTREE_CORE_COLLECT_CHAIN_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/collect/chain.h"

namespace ckptree::internal {

// The chain of an open store, kept up by the writer after each commit. Makes
// the collector and the others agree: a version is either held, or being
// collected, never both. No call holds the lock over I/O.
//
// Thread-safe.
class ChainKeeper {
 public:
  // Takes the chain as it was read. Where a row that says how versions hang
  // together is damaged nothing can be collected: `refusal` says why.
  absl::Status Load(absl::StatusOr<Chain> chain);
  absl::Status refusal() const;
  // `released` is called, without the lock, when nobody holds a removed version
  // any more that may go. Before the first is held.
  void OnReleased(std::function<void()> released);

  // ---- the writer ----

  // The tip of the branch; it is not collected until ReleaseBase(). Waits for
  // the collection of that very version to end.
  std::uint64_t HoldBase(std::uint32_t branch);
  void ReleaseBase();
  // Trees and pages that a save found there, or is about to write, are not
  // removed until ReleaseTrees(). Waits for a sweep to end.
  void HoldTrees(std::set<base::Digest> digests);
  void ReleaseTrees();
  // After the commit of a save. `replaced`: the version whose step it took.
  void Saved(std::uint64_t version, ChainLink link,
             std::optional<std::uint64_t> replaced);
  void Removed(std::uint64_t version);
  void Forked(std::uint32_t branch, std::uint64_t origin);
  void BranchDropped(std::uint32_t branch);
  // A number that no branch has and no version that is not collected.
  std::uint32_t NextBranch() const;

  // ---- readers ----

  // False where the version is collected, or about to be: its step is gone.
  bool Pin(std::uint64_t version);
  void Unpin(std::uint64_t version);

  // ---- the collector ----

  // Removed versions, ascending.
  std::vector<std::uint64_t> Removed() const;
  // Begins to collect those of `versions`, which ascend, that may go and that
  // nobody holds, as one: each step is what there is to do after the ones
  // before it. End() before the next.
  std::vector<ChainStep> Begin(std::span<const std::uint64_t> versions);
  // The first of them, as many as are in `committed`, are collected; the others
  // of Begin() are not.
  void End(std::span<const ChainStep> committed);
  // Trees that stay; no save begins to rely on another until EndSweep().
  std::set<base::Digest> BeginSweep();
  void EndSweep();
  // Versions that readers and a save of this process hold, and who.
  std::map<std::uint64_t, std::string> Held() const;

  Chain chain() const;
  std::uint64_t newest() const;  // Version.
  bool HasTree(const base::Digest& tree) const;
  ChainLink Link(std::uint64_t version) const;

 private:
  bool IsHeld(std::uint64_t version) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return base_ == version || pins_.contains(version);
  }
  // Whom to tell that `version` has been let go of.
  std::function<void()> WhomToTell(std::uint64_t version) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  Chain chain_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::map<std::uint64_t, int> pins_ ABSL_GUARDED_BY(mu_);
  std::uint64_t base_ ABSL_GUARDED_BY(mu_) = 0;  // 0: no save runs.
  std::set<std::uint64_t> collecting_ ABSL_GUARDED_BY(mu_);
  bool sweeping_ ABSL_GUARDED_BY(mu_) = false;
  std::set<base::Digest> held_trees_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_released_ ABSL_GUARDED_BY(mu_);
};

// Keeps a version readable while it lives.
class VersionPin {
 public:
  // Null where the version is gone.
  static std::shared_ptr<const VersionPin> Take(ChainKeeper* keeper,
                                                std::uint64_t version);
  ~VersionPin() { keeper_->Unpin(version_); }
  VersionPin(const VersionPin&) = delete;
  VersionPin& operator=(const VersionPin&) = delete;

 private:
  VersionPin(ChainKeeper* keeper, std::uint64_t version)
      : keeper_(keeper), version_(version) {}

  ChainKeeper* const keeper_;
  const std::uint64_t version_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_CHAIN_KEEPER_H_
