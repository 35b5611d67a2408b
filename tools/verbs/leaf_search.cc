// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/leaf_search.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "core/engine/tied_leaves.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/row_threads.h"

namespace ckptree::tools {
namespace {

// What a condition may say of a leaf; with "prev." before it, of the same leaf
// in the listed step before, as it may of steps and their metrics. The first
// ones are told without its record.
constexpr std::string_view kLeafNames[] = {
    "key",  "kind", "dtype", "shape", "bytes", "since", "count", "l2",
    "mean", "std",  "min",   "max",   "nan",   "inf",   "zeros"};
constexpr std::size_t kWithoutRecord = 4;
// And these by its record alone, as others do by its statistics.
constexpr std::size_t kWithoutStatistics = 6;
// And of a step.
constexpr std::string_view kStepNames[] = {
    "step",          "branch", "leaves", "new_bytes",
    "logical_bytes", "pinned", "tags",   "note"};

bool IsLeafName(std::string_view name) {
  return std::find(std::begin(kLeafNames), std::end(kLeafNames), name) !=
         std::end(kLeafNames);
}

bool IsOfLeafBefore(std::string_view name) {
  return name.starts_with(kBefore) && IsLeafName(name.substr(kBefore.size()));
}

// Null where a step has no such value. Its own names go before metrics.
Json StepValue(std::string_view name, const StepInfo& info) {
  if (name == "step") return info.step;
  if (name == "branch") return info.branch;
  if (name == "leaves") return info.leaf_count;
  if (name == "new_bytes") return info.new_bytes;
  if (name == "logical_bytes") return info.logical_bytes;
  if (name == "pinned") return info.pinned;
  if (name == "tags") return info.tags;
  if (name == "note") return info.note;
  for (const auto& [metric, value] : info.metrics) {
    if (name == metric) return value;
  }
  constexpr std::string_view kMetric = "metrics.";
  if (!name.starts_with(kMetric)) return Json();
  for (const auto& [metric, value] : info.metrics) {
    if (name.substr(kMetric.size()) == metric) return value;
  }
  return Json();
}

// Null where the leaf has no such value.
Json ValueOf(std::string_view name, const LeafInfo& leaf,
             const LeafDetail* detail) {
  if (name == "key") return leaf.name;
  if (name == "kind") return std::string(Name(KindOf(leaf)));
  if (name == "dtype" || name == "shape") {
    if (!HoldsArray(leaf)) return Json();
    return name == "shape" ? Json(leaf.shape)
                           : Json(std::string(Name(leaf.dtype)));
  }
  if (detail == nullptr) return Json();
  if (name == "bytes") return detail->bytes;
  if (name == "since") return detail->since_step;
  if (!detail->statistics || IsLargeInt(leaf)) return Json();
  if (name == "count") return detail->statistics->count;
  return StatisticOf(*detail->statistics, name);
}

// The leaves that `globs` name in full, in tree order; none where any of them
// is a pattern.
std::vector<Path> NamedBy(const std::vector<std::string>& globs) {
  std::map<std::string, Path> named;  // By what trees are sorted by.
  for (const std::string& glob : globs) {
    absl::StatusOr<Path> path = Path::Parse(glob);
    if (!path.ok() || path->empty() || glob.starts_with("re:") ||
        glob.find_first_of("*?[") != std::string::npos) {
      return {};
    }
    std::string encoded = path->Encode();
    named.emplace(std::move(encoded), *std::move(path));
  }
  std::vector<Path> paths;
  for (auto& [encoded, path] : named) paths.push_back(std::move(path));
  return paths;
}

const Json& Nothing() {
  static const Json nothing;
  return nothing;
}

}  // namespace

bool IsOwnName(std::string_view name) {
  return IsLeafName(name) ||
         std::find(std::begin(kStepNames), std::end(kStepNames), name) !=
             std::end(kStepNames);
}

bool IsStatistic(std::string_view name) {
  if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
  return std::find(kLeafNames + kWithoutStatistics, std::end(kLeafNames),
                   name) != std::end(kLeafNames);
}

void LeafSearch::AddValues(const LeafInfo& leaf, const LeafDetail* detail,
                           Values* values) const {
  values->reserve(names_.size());
  for (const std::string& name : names_) {
    values->push_back(ValueOf(name, leaf, detail));
  }
}

LeafSearch::LeafSearch(Expression condition, std::vector<std::string> globs)
    : condition_(std::move(condition)),
      globs_(std::move(globs)),
      named_(NamedBy(globs_)) {
  for (const std::string& name : condition_.Names()) {
    std::string_view plain = name;
    const bool before = plain.starts_with(kBefore);
    if (before) plain.remove_prefix(kBefore.size());
    if (!IsLeafName(plain)) {
      of_steps_ = true;
      step_names_.push_back(name);
      continue;
    }
    of_leaves_ = true;
    of_before_ |= before;
    needs_details_ |= std::find(kLeafNames, kLeafNames + kWithoutRecord,
                                plain) == kLeafNames + kWithoutRecord;
    if (std::find(names_.begin(), names_.end(), plain) == names_.end()) {
      names_.emplace_back(plain);
    }
  }
}

absl::Status LeafSearch::Bind() {
  std::vector<std::string> names(std::begin(kLeafNames), std::end(kLeafNames));
  for (const std::string_view name : kLeafNames) {
    names.push_back(std::string(kBefore) + std::string(name));
  }
  names.insert(names.end(), std::begin(kStepNames), std::end(kStepNames));
  std::set<std::string> metrics;
  for (const StepInfo& step : steps_) {
    for (const auto& [metric, value] : step.metrics) {
      if (!metrics.insert(metric).second) continue;
      names.push_back(metric);
      names.push_back("metrics." + metric);
    }
  }
  for (std::size_t i = std::size(kLeafNames) * 2, end = names.size(); i < end;
       ++i) {
    names.push_back(std::string(kBefore) + names[i]);
  }
  return WithHint(condition_.Bind(names), kWhereHint);
}

// By what the record of the step says: its own values, and that there is no NaN
// or Inf in it, where arrays without statistics have no such number at all.
bool LeafSearch::CannotHold(const StepInfo& info) const {
  if (!of_leaves_) return false;
  const Json zero = 0;
  for (const Json* none : {&zero, &Nothing()}) {
    const bool may_hold =
        !condition_.CannotHold([&](std::string_view name) -> const Json* {
          if (IsLeafName(name)) {
            const bool is_none =
                (name == "nan" || name == "inf") && info.nonfinite_leaves == 0;
            return is_none ? none : nullptr;
          }
          if (IsOfLeafBefore(name)) return nullptr;
          const auto value = step_values_.find(name);
          return value == step_values_.end() ? &Nothing() : &value->second;
        });
    if (may_hold) return false;
  }
  return true;
}

std::map<std::string, Json, std::less<>> LeafSearch::StepValues(
    const StepInfo& info, const StepInfo* before) const {
  std::map<std::string, Json, std::less<>> values;
  for (const std::string& name : step_names_) {
    Json value = StepValue(name, info);
    // A metric may be called so, too.
    if (value.is_null() && name.starts_with(kBefore) && before != nullptr) {
      value = StepValue(std::string_view(name).substr(kBefore.size()), *before);
    }
    values.emplace(name, std::move(value));
  }
  return values;
}

absl::Status LeafSearch::Begin(const Store& store,
                               const std::vector<StepInfo>& steps, bool settle,
                               const StepInfo* earlier) {
  store_ = &store;
  steps_ = steps;
  CKPTREE_RETURN_IF_ERROR(Bind());
  before_ = earlier_ = earlier;
  if (!of_leaves_) return absl::OkStatus();
  LoadHistories();
  return settle && named_.empty() ? Align() : absl::OkStatus();
}

absl::StatusOr<bool> LeafSearch::More() {
  if (Interrupted()) return absl::CancelledError("interrupted");
  if (aligned_) {
    CKPTREE_RETURN_IF_ERROR(LookAtRange());
  } else if (pieces_) {
    CKPTREE_RETURN_IF_ERROR(LookAtPiece());
  } else if (next_ < steps_.size()) {
    CKPTREE_RETURN_IF_ERROR(LookAt(steps_[next_++]));
  }
  return aligned_ || pieces_ || next_ < steps_.size();
}

absl::Status LeafSearch::LookAt(const StepInfo& info) {
  step_values_ = StepValues(info, before_);
  changed_since_ += info.changed_leaves;
  if (!of_leaves_) {
    CKPTREE_ASSIGN_OR_RETURN(const bool holds, Holds(nullptr, nullptr));
    if (holds) Hit(info, "", &steps_found_);
    ++looked_;
    before_ = &info;
    return absl::OkStatus();
  }
  // The newest one is asked in any case: what is wrong with a condition is said
  // then.
  if (next_ < steps_.size() && CannotHold(info)) {
    ++looked_;
    before_ = &info;
    before_is_loaded_ = false;
    return absl::OkStatus();
  }
  if (StandsAlone()) {
    CKPTREE_ASSIGN_OR_RETURN(step_, Open(info));
    if (!step_) return absl::OkStatus();
    ++looked_;
    ++turn_;
    before_ = &info;
    pieces_.emplace(*step_, "");
    if (next_ < steps_.size() && globs_.empty()) {
      leaves_.reserve(info.leaf_count);
      places_.reserve(info.leaf_count);
    }
    return LookAtPiece();
  }
  if (of_before_ && before_ != nullptr && !before_is_loaded_) {
    CKPTREE_RETURN_IF_ERROR(Load(*before_).status());
  }
  CKPTREE_ASSIGN_OR_RETURN(const bool there, Load(info));
  if (!there) return absl::OkStatus();
  ++looked_;
  before_ = &info;
  before_is_loaded_ = true;
  return AskLeaves(info, step_ ? &*step_ : nullptr);
}

bool LeafSearch::StandsAlone() const {
  return named_.empty() && !step_ && (!of_before_ || before_ == nullptr);
}

absl::Status LeafSearch::LookAtPiece() {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> infos, pieces_->Next());
  if (infos.empty()) {
    EndPieces();
    return absl::OkStatus();
  }
  CKPTREE_RETURN_IF_ERROR(EraseOthers(*step_, &infos));
  std::vector<LeafDetail> details;
  if (needs_details_) {
    CKPTREE_ASSIGN_OR_RETURN(details, internal::DetailsOf(*step_, infos));
  }
  std::vector<Leaf> leaves(infos.size());
  CKPTREE_RETURN_IF_ERROR(SetHolds(leaves, [&](Leaf* leaf) {
    const auto i = static_cast<std::size_t>(leaf - leaves.data());
    const LeafDetail* const detail = details.empty() ? nullptr : &details[i];
    AddValues(infos[i], detail, &leaf->values);
    leaf->info = std::move(infos[i]);
    if (detail != nullptr) leaf->statistics = detail->statistics;
    leaf->there = true;
    leaf->changed = turn_;
    return true;
  }));
  CKPTREE_RETURN_IF_ERROR(HitAll(*before_, &*step_, leaves));
  if (next_ < steps_.size()) {
    // What the next steps are compared with.
    for (Leaf& leaf : leaves) {
      places_.emplace(leaf.info.name, leaves_.size());
      leaves_.push_back(std::move(leaf));
    }
  } else if (!leaves.empty() && CannotHold(*before_)) {
    EndPieces();  // The first ones have said what is wrong with the condition.
  }
  return absl::OkStatus();
}

void LeafSearch::EndPieces() {
  pieces_.reset();
  leaf_count_ = step_->info().leaf_count;
  changed_since_ = 0;
  before_is_loaded_ = true;
  asked_turn_ = turn_;
}

template <typename Ask>
absl::Status LeafSearch::SetHolds(std::span<Leaf> leaves,
                                  const Ask& ask) const {
  const std::vector<RowRange> ranges = RangesOfRows(leaves.size());
  std::vector<absl::Status> statuses(ranges.size());
  OnRowThreads(ranges.size(), [&](std::size_t t) {
    for (std::size_t i = ranges[t].begin; i < ranges[t].end; ++i) {
      Leaf& leaf = leaves[i];
      if (!ask(&leaf)) continue;
      const absl::StatusOr<bool> holds = Holds(
          &leaf.values, leaf.changed == turn_ ? &leaf.before : &leaf.values);
      if (!holds.ok()) {
        statuses[t] = holds.status();
        return;
      }
      leaf.holds = *holds;
    }
  });
  for (const absl::Status& status : statuses) CKPTREE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::StatusOr<bool> LeafSearch::Holds(const Values* values,
                                       const Values* before) const {
  const absl::StatusOr<bool> holds =
      condition_.Holds([&](std::string_view name) -> const Json& {
        const Values* of = values;
        if (IsOfLeafBefore(name)) {
          name.remove_prefix(kBefore.size());
          of = before;
        } else if (values == nullptr || !IsLeafName(name)) {
          const auto value = step_values_.find(name);
          return value == step_values_.end() ? Nothing() : value->second;
        }
        if (of == nullptr || of->empty()) return Nothing();
        const auto place = std::find(names_.begin(), names_.end(), name);
        return (*of)[static_cast<std::size_t>(place - names_.begin())];
      });
  if (!holds.ok()) return WithHint(holds.status(), kWhereHint);
  return holds;
}

void LeafSearch::Hit(const StepInfo& info, std::string_view key,
                     std::size_t* found) {
  if (*found == kNone) {
    *found = found_.size();
    found_.push_back({std::string(key), info.step, info.step, 0, std::nullopt});
  }
  ++found_[*found].steps;
  found_[*found].last = info.step;
}

absl::Status LeafSearch::AskLeaves(const StepInfo& info, const Step* step) {
  CKPTREE_RETURN_IF_ERROR(SetHolds(leaves_, [this](Leaf* leaf) {
    // Those of which nothing differs from when they were asked last have the
    // same answer.
    return leaf->there && (of_steps_ || leaf->changed > asked_turn_ ||
                           (of_before_ && leaf->changed == asked_turn_));
  }));
  asked_turn_ = turn_;
  return HitAll(info, step, leaves_);
}

absl::Status LeafSearch::HitAll(const StepInfo& info, const Step* step,
                                std::span<Leaf> leaves) {
  // Of new rows whose records were not read.
  std::vector<LeafInfo> unread;
  std::vector<Leaf*> leaves_of_unread;
  const std::size_t found_before = found_.size();
  for (Leaf& leaf : leaves) {
    if (!leaf.there || !leaf.holds) continue;
    const bool first = leaf.found == kNone;
    Hit(info, leaf.info.name, &leaf.found);
    if (!first) continue;
    if (!needs_details_ && histories_.empty()) {
      unread.push_back(std::move(leaf.info));
      leaves_of_unread.push_back(&leaf);
    } else {
      found_[leaf.found].at_first = leaf.statistics;
    }
  }
  if (unread.empty()) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafDetail> details,
                           internal::DetailsOf(*step, unread));
  for (std::size_t i = 0; i < details.size(); ++i) {
    found_[found_before + i].at_first = details[i].statistics;
    leaves_of_unread[i]->info = std::move(unread[i]);
  }
  return absl::OkStatus();
}

}  // namespace ckptree::tools
