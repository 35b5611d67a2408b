// SPDX-License-Identifier: Apache-2.0

#include "core/collect/chain.h"

#include <algorithm>
#include <utility>

namespace ckptree::internal {

void Chain::Add(std::uint64_t version, ChainLink link) {
  for (const base::Digest& tree : link.trees) ++trees_[tree];
  if (link.removed) removed_.insert(version);
  if (link.prev != 0) successors_.emplace(link.prev, version);
  versions_.insert_or_assign(version, std::move(link));
}

void Chain::SetTip(std::uint32_t branch, std::uint64_t version) {
  tips_[branch] = version;
}

void Chain::DropBranch(std::uint32_t branch) { tips_.erase(branch); }

void Chain::Remove(std::uint64_t version) {
  if (const auto it = versions_.find(version); it != versions_.end()) {
    it->second.removed = true;
    removed_.insert(version);
  }
}

std::vector<std::uint64_t> Chain::Successors(std::uint64_t version) const {
  std::vector<std::uint64_t> successors;
  const auto [begin, end] = successors_.equal_range(version);
  for (auto it = begin; it != end; ++it) successors.push_back(it->second);
  return successors;
}

bool Chain::MayGo(std::uint64_t version) const {
  return removed_.contains(version) && CouldGo(version);
}

bool Chain::CouldGo(std::uint64_t version) const {
  return WhyKept(version).empty();
}

std::string Chain::WhyKept(std::uint64_t version) const {
  if (successors_.count(version) > 1) {
    return "two branches go on from it, until one is dropped";
  }
  const std::uint32_t branch = versions_.at(version).branch;
  const bool starts = std::any_of(tips_.begin(), tips_.end(), [&](auto& tip) {
    return tip.second == version && tip.first != branch;
  });
  return starts ? "a branch that has no save yet goes on from it" : "";
}

ChainStep Chain::StepOf(std::uint64_t version) const {
  const ChainLink& link = versions_.at(version);
  ChainStep step;
  step.version = version;
  step.prev = link.prev;
  step.branch = link.branch;
  if (const auto successor = successors_.find(version);
      successor != successors_.end()) {
    step.successor = successor->second;
  }
  const auto tip = tips_.find(link.branch);
  if (tip != tips_.end() && tip->second == version) {
    step.tip = TipAfter(link.branch, link.prev);
  }
  return step;
}

std::uint64_t Chain::TipAfter(std::uint32_t branch, std::uint64_t prev) const {
  const auto before = versions_.find(prev);
  return before != versions_.end() && before->second.branch == branch ? prev
                                                                      : 0;
}

void Chain::Collect(const ChainStep& step) {
  const auto it = versions_.find(step.version);
  for (const base::Digest& tree : it->second.trees) {
    if (--trees_[tree] == 0) trees_.erase(tree);
  }
  const auto [begin, end] = successors_.equal_range(step.prev);
  for (auto successor = begin; successor != end; ++successor) {
    if (successor->second != step.version) continue;
    successors_.erase(successor);
    break;
  }
  successors_.erase(step.version);
  if (step.successor != 0) {
    versions_.at(step.successor).prev = step.prev;
    if (step.prev != 0) successors_.emplace(step.prev, step.successor);
  }
  versions_.erase(it);
  removed_.erase(step.version);
  // The branch may have been dropped since this was planned.
  const auto tip = tips_.find(step.branch);
  if (step.tip.has_value() && tip != tips_.end() &&
      tip->second == step.version) {
    tip->second = *step.tip;
  }
}

std::set<base::Digest> Chain::Trees() const {
  std::set<base::Digest> trees;
  for (const auto& [tree, count] : trees_) trees.insert(tree);
  return trees;
}

}  // namespace ckptree::internal
