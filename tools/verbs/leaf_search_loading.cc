// SPDX-License-Identifier: Apache-2.0

// A search in steps: what is known of their leaves is read.

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "ckptree/history.h"
#include "core/engine/tied_leaves.h"
#include "tools/output/interrupt.h"
#include "tools/verbs/leaf_search.h"

namespace ckptree::tools {
namespace {

// So few are opened, rather than all that their leaves ever were be read.
constexpr std::size_t kFewSteps = 16;

}  // namespace

// `info` is taken where it may be, else copied into what the leaf has already.
template <typename Info>
void LeafSearch::Put(Info&& info, const LeafDetail* detail) {
  // Most steps have the same leaves, in the same order.
  if (next_place_ >= leaves_.size() ||
      leaves_[next_place_].info.name != info.name) {
    const auto [place, fresh] = places_.emplace(info.name, leaves_.size());
    if (fresh) leaves_.emplace_back().seen = turn_;
    next_place_ = place->second;
  }
  Leaf& leaf = leaves_[next_place_++];
  leaf.there = true;
  leaf.statistics = detail == nullptr ? std::nullopt : detail->statistics;
  Values values;
  AddValues(info, detail, &values);
  if (!leaf.values.empty() && leaf.values == values) return;
  leaf.info = std::forward<Info>(info);
  leaf.before = std::move(leaf.values);
  leaf.values = std::move(values);
  leaf.changed = turn_;
}

void LeafSearch::LoadHistories() {
  // One is of one branch.
  if (earlier_ != nullptr && earlier_->branch != steps_.front().branch) return;
  std::size_t opened = 0;
  const StepInfo* before = earlier_;
  for (const StepInfo& info : steps_) {
    step_values_ = StepValues(info, std::exchange(before, &info));
    opened += CannotHold(info) ? 0 : 1;
    if (opened == kFewSteps) break;
  }
  if (opened < kFewSteps) return;
  HistoryOptions options;
  options.branch = steps_.front().branch;
  options.first = (earlier_ != nullptr ? *earlier_ : steps_.front()).step;
  options.last = steps_.back().step;
  options.cancelled = Interrupted;
  for (const Path& path : named_) {
    absl::StatusOr<LeafInSteps> found =
        LeafInSteps::Read(*store_, path, options);
    if (!found.ok() || found->AnyBelow(*store_, path, options)) {
      histories_.clear();
      return;
    }
    histories_.push_back({path.Text(), *std::move(found)});
  }
}

void LeafSearch::LoadFromHistories(const StepInfo& info) {
  ++turn_;
  for (History& history : histories_) {
    const std::vector<LeafInSteps::InStep>& steps = history.found.steps();
    while (history.at < steps.size() && steps[history.at].step < info.step) {
      ++history.at;
    }
    const internal::PastValue* const value =
        history.at < steps.size() && steps[history.at].step == info.step
            ? steps[history.at].value
            : nullptr;
    if (value != nullptr && IsWanted(*value->leaf)) {
      // What a condition may ask.
      const LeafDetail detail = {.bytes = value->bytes,
                                 .since_step = value->since_step,
                                 .statistics = value->statistics};
      Put(*value->leaf, &detail);
    } else {
      Remove(history.name);
    }
  }
}

absl::StatusOr<std::optional<Step>> LeafSearch::Open(
    const StepInfo& info) const {
  absl::StatusOr<Step> step = store_->OpenStep(AtStep(info.step, info.branch));
  if (IsStepGone(step.status())) return std::optional<Step>();
  CKPTREE_RETURN_IF_ERROR(step.status());
  return std::optional<Step>(*std::move(step));
}

absl::StatusOr<bool> LeafSearch::Load(const StepInfo& info) {
  if (!histories_.empty()) {
    LoadFromHistories(info);
    return true;
  }
  CKPTREE_ASSIGN_OR_RETURN(std::optional<Step> step, Open(info));
  if (!step) return false;
  ++turn_;
  // To compare two steps takes two records of each leaf that differs. Of one
  // that is equal more may be known than before.
  const bool little = step_ && changed_since_ * 2 < info.leaf_count &&
                      step_->info().unknown_leaves == info.unknown_leaves;
  CKPTREE_RETURN_IF_ERROR(little ? LoadChanges(*step) : LoadAll(*step));
  if (leaf_count_ != info.leaf_count) CKPTREE_RETURN_IF_ERROR(LoadAll(*step));
  step_ = std::move(step);
  changed_since_ = 0;
  return true;
}

bool LeafSearch::IsWanted(const LeafInfo& leaf) const {
  return globs_.empty() ||
         std::any_of(globs_.begin(), globs_.end(), [&](const auto& glob) {
           return MatchesGlob(glob, leaf.name);
         });
}

absl::Status LeafSearch::EraseOthers(const Step& step,
                                     std::vector<LeafInfo>* leaves) const {
  std::erase_if(*leaves, [this](const LeafInfo& leaf) {
    return (!leaf.is_leaf() && !leaf.tie_to) || !IsWanted(leaf);
  });
  return internal::FollowTies(step, leaves);
}

absl::StatusOr<std::vector<LeafInfo>> LeafSearch::Wanted(
    const Step& step) const {
  std::vector<LeafInfo> infos;
  if (named_.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(infos, step.Leaves());
  }
  std::set<std::string> seen;  // One subtree may be below another.
  for (const Path& path : named_) {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> info, step.Find(path));
    std::vector<LeafInfo> found;
    if (info && (info->is_leaf() || info->tie_to)) {
      found.push_back(*std::move(info));
    } else {
      CKPTREE_ASSIGN_OR_RETURN(found, step.Leaves(path.Text()));
    }
    for (LeafInfo& leaf : found) {
      if (seen.insert(leaf.name).second) infos.push_back(std::move(leaf));
    }
  }
  CKPTREE_RETURN_IF_ERROR(EraseOthers(step, &infos));
  return infos;
}

absl::Status LeafSearch::LoadAll(const Step& step) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> infos, Wanted(step));
  leaf_count_ = step.info().leaf_count;
  return Replace(step, std::move(infos));
}

absl::Status LeafSearch::Replace(const Step& step,
                                 std::vector<LeafInfo> infos) {
  std::vector<LeafDetail> details;
  if (needs_details_) {
    CKPTREE_ASSIGN_OR_RETURN(details, internal::DetailsOf(step, infos));
  }
  for (Leaf& leaf : leaves_) leaf.there = false;
  if (leaves_.empty()) leaves_.reserve(infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    Put(std::move(infos[i]), needs_details_ ? &details[i] : nullptr);
  }
  for (Leaf& leaf : leaves_) {
    if (!leaf.there) Remove(leaf.info.name);
  }
  return absl::OkStatus();
}

absl::Status LeafSearch::LoadChanges(const Step& step) {
  CKPTREE_ASSIGN_OR_RETURN(const DiffReport report, Diff(*step_, step));
  // Steps do not count ties, which have the values of their leaves here.
  const auto is_counted = [](const std::optional<LeafInfo>& info) {
    return info && info->is_leaf() && !info->tie_to;
  };
  for (const LeafChange& change : report.changes) {
    if (is_counted(change.before)) --leaf_count_;
    if (is_counted(change.after)) ++leaf_count_;
    if (!change.after || !change.after->is_leaf()) {
      Remove(change.name);
    } else if (IsWanted(*change.after)) {
      Put(*change.after, &*change.after_detail);
    }
  }
  return absl::OkStatus();
}

void LeafSearch::Remove(std::string_view name) {
  const auto place = places_.find(std::string(name));
  if (place == places_.end()) return;
  Leaf& leaf = leaves_[place->second];
  leaf.there = false;
  leaf.holds = false;
  leaf.values.clear();
  leaf.before.clear();
}

}  // namespace ckptree::tools
