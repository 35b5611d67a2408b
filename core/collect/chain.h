// SPDX-License-Identifier: Apache-2.0

// The chain: the tree of versions that are not collected, and the rules of
// which of them may go.

#ifndef CKPTREE_CORE_COLLECT_CHAIN_H_
#define CKPTREE_CORE_COLLECT_CHAIN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"

namespace ckptree::internal {

struct ChainLink {
  std::uint64_t prev = 0;  // 0: the first of its chain.
  std::uint32_t branch = 0;
  std::int64_t step = 0;
  bool removed = false;  // Its step has no row any more.
  // Commit that wrote it; 0: before the store was opened.
  std::uint64_t ordinal = 0;
  std::vector<base::Digest> trees;  // Of its parts.
};

// What collecting a version changes.
struct ChainStep {
  std::uint64_t version = 0;
  std::uint64_t prev = 0;
  std::uint64_t successor = 0;  // Whose prev becomes `prev`; 0: it has none.
  std::uint32_t branch = 0;
  std::optional<std::uint64_t>
      tip;  // The new tip of `branch`, where it changes.
};

// In version order, never step order. A value: no I/O, no locks.
class Chain {
 public:
  void Add(std::uint64_t version, ChainLink link);
  void SetTip(std::uint32_t branch, std::uint64_t version);
  void DropBranch(std::uint32_t branch);
  void Remove(std::uint64_t version);  // Its step lost its row.

  const std::map<std::uint64_t, ChainLink>& versions() const {
    return versions_;
  }
  const std::map<std::uint32_t, std::uint64_t>& tips() const { return tips_; }
  const std::set<std::uint64_t>& removed() const { return removed_; }
  std::uint64_t newest() const {
    return versions_.empty() ? 0 : versions_.rbegin()->first;
  }

  // Those whose prev is `version`, on any branch.
  std::vector<std::uint64_t> Successors(std::uint64_t version) const;

  // A removed version may go where at most one version follows it and no other
  // branch starts from it: until then its blocks cannot be told apart (two
  // successors), or are what the next save of a fork is compared with.
  bool MayGo(std::uint64_t version) const;

  // MayGo, were its step removed.
  bool CouldGo(std::uint64_t version) const;
  // Why a removed version may not go; empty where it may.
  std::string WhyKept(std::uint64_t version) const;

  // What Collect would change. REQUIRES: CouldGo(version).
  ChainStep StepOf(std::uint64_t version) const;
  // What the tip of `branch` becomes where its last version goes and `prev` was
  // the one before.
  std::uint64_t TipAfter(std::uint32_t branch, std::uint64_t prev) const;
  // Takes the version out: its successor follows its prev; the tip of its
  // branch, where that is there and it was that, becomes prev where that is of
  // the same branch, else 0.
  void Collect(const ChainStep& step);

  bool HasTree(const base::Digest& tree) const { return trees_.contains(tree); }
  std::set<base::Digest> Trees() const;

 private:
  std::map<std::uint64_t, ChainLink> versions_;
  std::set<std::uint64_t> removed_;
  std::map<std::uint32_t, std::uint64_t> tips_;             // By branch.
  std::multimap<std::uint64_t, std::uint64_t> successors_;  // By prev.
  std::map<base::Digest, int> trees_;  // How many parts have it.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_CHAIN_H_
