// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/leaf_search.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/status_macros.h"
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

// So few are opened, rather than all that their leaves ever were be read.
constexpr std::size_t kFewSteps = 16;

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

absl::Status LeafSearch::LookAtPiece() {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> infos, pieces_->Next());
  if (infos.empty()) {
    EndPieces();
    return absl::OkStatus();
  }
  EraseOthers(&infos);
  std::vector<LeafDetail> details;
  if (needs_details_) {
    CKPTREE_ASSIGN_OR_RETURN(details, step_->Details(infos));
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

bool LeafSearch::IsWanted(const LeafInfo& leaf) const {
  return globs_.empty() ||
         std::any_of(globs_.begin(), globs_.end(), [&](const auto& glob) {
           return MatchesGlob(glob, leaf.name);
         });
}

void LeafSearch::EraseOthers(std::vector<LeafInfo>* leaves) const {
  std::erase_if(*leaves, [this](const LeafInfo& leaf) {
    return !leaf.is_leaf() || !IsWanted(leaf);
  });
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
  EraseOthers(&infos);
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
    CKPTREE_ASSIGN_OR_RETURN(details, step.Details(infos));
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
  const auto is_leaf = [](const std::optional<LeafInfo>& info) {
    return info && info->is_leaf() && !info->tie_to;
  };
  for (const LeafChange& change : report.changes) {
    const bool now = is_leaf(change.after);
    if (is_leaf(change.before)) --leaf_count_;
    if (now) ++leaf_count_;
    if (!now) {
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
                           step->Details(unread));
  for (std::size_t i = 0; i < details.size(); ++i) {
    found_[found_before + i].at_first = details[i].statistics;
    leaves_of_unread[i]->info = std::move(unread[i]);
  }
  return absl::OkStatus();
}

}  // namespace ckptree::tools
