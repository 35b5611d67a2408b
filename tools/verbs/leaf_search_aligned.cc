// SPDX-License-Identifier: Apache-2.0

// A search in some steps, side by side: of the first leaves all is known before
// the next are read.

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "tools/output/interrupt.h"
#include "tools/verbs/leaf_search.h"

namespace ckptree::tools {
namespace {

// So many are opened at once: of more a range would be too short to be worth
// its look-ups. Steps of several parts are held as wholes, so these are fewer.
constexpr std::size_t kMostAligned = 256;
constexpr std::size_t kMostAtOnce = 16;
// So few in all steps together are read soon enough one step after the other.
constexpr std::uint64_t kFewLeaves = 8192;

}  // namespace

std::vector<LeafSearch::Turn> LeafSearch::TurnsToAlign() {
  std::vector<Turn> turns;
  const StepInfo* before = earlier_;
  bool before_is_loaded = false;
  std::uint64_t changed = 0;  // Since the last one that is loaded.
  bool little = false;        // Changes in one of them.
  const auto add = [&](const StepInfo& info, bool asked) {
    if (!turns.empty()) little = little || changed * 2 < info.leaf_count;
    turns.push_back({.info = &info, .asked = asked});
    changed = 0;
  };
  for (const StepInfo& info : steps_) {
    step_values_ = StepValues(info, before);
    const bool last = &info == &steps_.back();
    const bool cannot_hold = CannotHold(info);
    if (last || !cannot_hold) {
      if (of_before_ && before != nullptr && !before_is_loaded) {
        add(*before, false);
      }
      changed += info.changed_leaves;
      add(info, true);
      turns.back().values = step_values_;
      // As of any last one, the first leaves say what is wrong with it.
      turns.back().briefly = cannot_hold;
    } else {
      changed += info.changed_leaves;
    }
    before_is_loaded = last || !cannot_hold;
    before = &info;
    if (turns.size() > kMostAligned || little) return {};
  }
  std::uint64_t leaves = 0;
  for (const Turn& turn : turns) leaves += turn.info->leaf_count;
  if (leaves < kFewLeaves) turns.clear();
  return turns;
}

absl::Status LeafSearch::Align() {
  std::vector<Turn> turns = TurnsToAlign();
  // One that stands alone is read by pieces as it is.
  if (turns.size() < 2) return absl::OkStatus();
  std::vector<Step> opened;
  for (const Turn& turn : turns) {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<Step> step, Open(*turn.info));
    if (!step) return absl::OkStatus();  // Who opens one by one passes it over.
    opened.push_back(*std::move(step));
  }
  std::vector<const Step*> steps;
  for (const Step& step : opened) steps.push_back(&step);
  AlignedSteps aligned(steps);
  if (aligned.any_at_once() && steps.size() > kMostAtOnce) {
    return absl::OkStatus();
  }
  turns_ = std::move(turns);
  opened_ = std::move(opened);  // Each stays where it is.
  aligned_.emplace(std::move(aligned));
  looked_ = steps_.size();
  next_ = steps_.size();
  return absl::OkStatus();
}

absl::Status LeafSearch::LookAtRange() {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<std::vector<LeafInfo>> range,
                           aligned_->Next());
  if (std::ranges::all_of(range, [](const auto& of) { return of.empty(); })) {
    EndRanges();
    return absl::OkStatus();
  }
  leaves_.clear();
  places_.clear();
  next_place_ = 0;
  turn_ = 0;
  asked_turn_ = 0;
  const std::size_t found_before = found_.size();
  bool any = false;
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    CKPTREE_RETURN_IF_ERROR(EraseOthers(opened_[i], &range[i]));
    any = any || !range[i].empty();
    ++turn_;
    CKPTREE_RETURN_IF_ERROR(Replace(opened_[i], std::move(range[i])));
    if (!turns_[i].asked) continue;
    step_values_ = turns_[i].values;
    CKPTREE_RETURN_IF_ERROR(AskLeaves(*turns_[i].info, &opened_[i]));
  }
  SetAside(found_before);
  if (any && turns_.back().briefly) {
    aligned_->EndLast();
    turns_.back().asked = false;
  }
  return absl::OkStatus();
}

void LeafSearch::SetAside(std::size_t found_before) {
  // The turns in which the leaves of the rows were seen first.
  std::vector<std::uint64_t> seen(found_.size() - found_before);
  for (const Leaf& leaf : leaves_) {
    if (leaf.found != kNone) seen[leaf.found - found_before] = leaf.seen;
  }
  const auto first = std::ranges::find(turns_, true, &Turn::asked);
  std::size_t kept = found_before;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    Found& found = found_[found_before + i];
    if (seen[i] == 1 && found.first == first->info->step) {
      if (kept != found_before + i) found_[kept] = std::move(found);
      ++kept;
    } else {
      later_.push_back({std::move(found), seen[i]});
    }
  }
  found_.resize(kept);
}

void LeafSearch::EndRanges() {
  aligned_.reset();
  // In each range they are so.
  std::ranges::stable_sort(later_, {}, [](const Later& later) {
    return std::tuple(later.found.first, later.seen);
  });
  for (Later& later : later_) found_.push_back(std::move(later.found));
  later_.clear();
}

}  // namespace ckptree::tools
