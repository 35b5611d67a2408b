// SPDX-License-Identifier: Apache-2.0

#include "core/collect/chain_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace ckptree::internal {

absl::Status ChainKeeper::Load(absl::StatusOr<Chain> chain) {
  const absl::MutexLock lock(&mu_);
  if (chain.ok()) {
    chain_ = *std::move(chain);
    return absl::OkStatus();
  }
  refusal_ = absl::Status(
      chain.status().code(),
      absl::StrFormat("nothing is collected, for it cannot be told what is "
                      "still needed: %s",
                      chain.status().message()));
  return refusal_;
}

absl::Status ChainKeeper::refusal() const {
  const absl::MutexLock lock(&mu_);
  return refusal_;
}

std::uint64_t ChainKeeper::HoldBase(std::uint32_t branch) {
  const absl::MutexLock lock(&mu_);
  const auto free = [this, branch]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    const auto tip = chain_.tips().find(branch);
    return tip == chain_.tips().end() || tip->second == 0 ||
           !collecting_.contains(tip->second);
  };
  mu_.Await(absl::Condition(&free));
  const auto tip = chain_.tips().find(branch);
  base_ = tip == chain_.tips().end() ? 0 : tip->second;
  return base_;
}

void ChainKeeper::OnReleased(std::function<void()> released) {
  const absl::MutexLock lock(&mu_);
  on_released_ = std::move(released);
}

std::function<void()> ChainKeeper::WhomToTell(std::uint64_t version) const {
  const bool may_go = !IsHeld(version) && chain_.MayGo(version);
  return may_go ? on_released_ : nullptr;
}

void ChainKeeper::ReleaseBase() {
  std::function<void()> tell;
  {
    const absl::MutexLock lock(&mu_);
    tell = WhomToTell(std::exchange(base_, 0));
  }
  if (tell) tell();
}

void ChainKeeper::HoldTrees(std::set<base::Digest> digests) {
  const absl::MutexLock lock(&mu_);
  const auto free = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !sweeping_; };
  mu_.Await(absl::Condition(&free));
  held_trees_ = std::move(digests);
}

void ChainKeeper::ReleaseTrees() {
  const absl::MutexLock lock(&mu_);
  held_trees_.clear();
}

void ChainKeeper::Saved(std::uint64_t version, ChainLink link,
                        std::optional<std::uint64_t> replaced) {
  const absl::MutexLock lock(&mu_);
  const std::uint32_t branch = link.branch;
  chain_.Add(version, std::move(link));
  chain_.SetTip(branch, version);
  if (replaced.has_value()) chain_.Remove(*replaced);
}

void ChainKeeper::Removed(std::uint64_t version) {
  const absl::MutexLock lock(&mu_);
  chain_.Remove(version);
}

void ChainKeeper::Forked(std::uint32_t branch, std::uint64_t origin) {
  const absl::MutexLock lock(&mu_);
  chain_.SetTip(branch, origin);
}

void ChainKeeper::BranchDropped(std::uint32_t branch) {
  const absl::MutexLock lock(&mu_);
  chain_.DropBranch(branch);
}

std::uint32_t ChainKeeper::NextBranch() const {
  const absl::MutexLock lock(&mu_);
  std::uint32_t last = 0;
  for (const auto& [branch, tip] : chain_.tips()) last = std::max(last, branch);
  for (const auto& [version, link] : chain_.versions()) {
    last = std::max(last, link.branch);
  }
  return last + 1;
}

bool ChainKeeper::Pin(std::uint64_t version) {
  const absl::MutexLock lock(&mu_);
  // Without a chain nothing is ever collected.
  if (refusal_.ok() &&
      (collecting_.contains(version) || !chain_.versions().contains(version))) {
    return false;
  }
  ++pins_[version];
  return true;
}

void ChainKeeper::Unpin(std::uint64_t version) {
  std::function<void()> tell;
  {
    const absl::MutexLock lock(&mu_);
    const auto it = pins_.find(version);
    if (--it->second > 0) return;
    pins_.erase(it);
    tell = WhomToTell(version);
  }
  if (tell) tell();
}

std::vector<std::uint64_t> ChainKeeper::Removed() const {
  const absl::MutexLock lock(&mu_);
  return {chain_.removed().begin(), chain_.removed().end()};
}

std::vector<ChainStep> ChainKeeper::Begin(
    std::span<const std::uint64_t> versions) {
  const absl::MutexLock lock(&mu_);
  std::vector<ChainStep> steps;
  if (!refusal_.ok()) return steps;
  std::map<std::uint64_t, std::uint64_t> prev_of;  // Of those that go.
  for (const std::uint64_t version : versions) {
    if (IsHeld(version) || !chain_.MayGo(version)) continue;
    ChainStep step = chain_.StepOf(version);
    if (const auto gone = prev_of.find(step.prev); gone != prev_of.end()) {
      step.prev = gone->second;
      if (step.tip.has_value()) {
        step.tip = chain_.TipAfter(step.branch, step.prev);
      }
    }
    prev_of[version] = step.prev;
    collecting_.insert(version);
    steps.push_back(step);
  }
  return steps;
}

void ChainKeeper::End(std::span<const ChainStep> committed) {
  const absl::MutexLock lock(&mu_);
  // First: a save may wait for them, also where there is no memory for the
  // rest.
  collecting_.clear();
  for (const ChainStep& step : committed) chain_.Collect(step);
}

std::set<base::Digest> ChainKeeper::BeginSweep() {
  const absl::MutexLock lock(&mu_);
  sweeping_ = true;
  std::set<base::Digest> trees = chain_.Trees();
  trees.insert(held_trees_.begin(), held_trees_.end());
  return trees;
}

void ChainKeeper::EndSweep() {
  const absl::MutexLock lock(&mu_);
  sweeping_ = false;
}

std::map<std::uint64_t, std::string> ChainKeeper::Held() const {
  const absl::MutexLock lock(&mu_);
  std::map<std::uint64_t, std::string> held;
  if (base_ != 0) held[base_] = "a save in flight is compared with it";
  for (const auto& [version, count] : pins_) {
    held[version] = "a reader of this process has it open";
  }
  return held;
}

Chain ChainKeeper::chain() const {
  const absl::MutexLock lock(&mu_);
  return chain_;
}

std::uint64_t ChainKeeper::newest() const {
  const absl::MutexLock lock(&mu_);
  return chain_.newest();
}

bool ChainKeeper::HasTree(const base::Digest& tree) const {
  const absl::MutexLock lock(&mu_);
  return chain_.HasTree(tree);
}

ChainLink ChainKeeper::Link(std::uint64_t version) const {
  const absl::MutexLock lock(&mu_);
  const auto it = chain_.versions().find(version);
  return it == chain_.versions().end() ? ChainLink() : it->second;
}

std::shared_ptr<const VersionPin> VersionPin::Take(ChainKeeper* keeper,
                                                   std::uint64_t version) {
  if (!keeper->Pin(version)) return nullptr;
  return std::shared_ptr<const VersionPin>(new VersionPin(keeper, version));
}

}  // namespace ckptree::internal
