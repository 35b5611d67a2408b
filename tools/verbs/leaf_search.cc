// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/leaf_search.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"

namespace ckptree::tools {
namespace {

// What a condition may say of a leaf; with "prev." before it, of the same leaf
// in the listed step before, as it may of steps and their metrics. The first
// ones are told without its record.
constexpr std::string_view kLeafNames[] = {
    "key",  "kind", "dtype", "shape", "bytes", "since", "count", "l2",
    "mean", "std",  "min",   "max",   "nan",   "inf",   "zeros"};
constexpr std::size_t kWithoutRecord = 4;
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
  if (name == "kind") return std::string(Name(leaf.kind));
  if (name == "dtype" || name == "shape") {
    if (leaf.dtype == DType::kNone) return Json();
    return name == "shape" ? Json(leaf.shape)
                           : Json(std::string(Name(leaf.dtype)));
  }
  if (detail == nullptr) return Json();
  if (name == "bytes") return detail->bytes;
  if (name == "since") return detail->since_step;
  if (!detail->statistics) return Json();
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

// `info` is taken where it may be, else copied into what the leaf has already.
template <typename Info>
void LeafSearch::Put(Info&& info, const LeafDetail* detail) {
  const auto [place, fresh] = places_.emplace(info.name, leaves_.size());
  if (fresh) leaves_.emplace_back();
  Leaf& leaf = leaves_[place->second];
  leaf.there = true;
  leaf.statistics = detail == nullptr ? std::nullopt : detail->statistics;
  Values values;
  values.reserve(names_.size());
  for (const std::string& name : names_) {
    values.push_back(ValueOf(name, info, detail));
  }
  if (!leaf.values.empty() && leaf.values == values) return;
  leaf.info = std::forward<Info>(info);
  leaf.before = std::move(leaf.values);
  leaf.values = std::move(values);
  leaf.changed = turn_;
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

absl::Status LeafSearch::Bind(const std::vector<StepInfo>& steps) {
  std::vector<std::string> names(std::begin(kLeafNames), std::end(kLeafNames));
  for (const std::string_view name : kLeafNames) {
    names.push_back(std::string(kBefore) + std::string(name));
  }
  names.insert(names.end(), std::begin(kStepNames), std::end(kStepNames));
  std::set<std::string> metrics;
  for (const StepInfo& step : steps) {
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

void LeafSearch::LoadHistories(const Store& store,
                               const std::vector<StepInfo>& steps) {
  // A history says since when a leaf has its value once for all steps of it.
  const bool by_step =
      std::find(names_.begin(), names_.end(), "since") != names_.end();
  if (by_step) return;
  std::size_t opened = 0;
  const StepInfo* before = nullptr;
  for (const StepInfo& info : steps) {
    step_values_ = StepValues(info, std::exchange(before, &info));
    opened += CannotHold(info) ? 0 : 1;
    if (opened == kFewSteps) break;
  }
  if (opened < kFewSteps) return;
  HistoryOptions options;
  options.branch = steps.front().branch;
  options.first = steps.front().step;
  options.last = steps.back().step;
  options.cancelled = Interrupted;
  for (const Path& path : named_) {
    absl::StatusOr<std::vector<HistoryEntry>> entries =
        History(store, path, options);
    if (absl::IsNotFound(entries.status())) {
      entries = std::vector<HistoryEntry>();
    }
    if (!entries.ok()) {
      histories_.clear();
      return;
    }
    histories_.push_back({path.Text(), *std::move(entries)});
  }
}

void LeafSearch::LoadFromHistories(const StepInfo& info) {
  ++turn_;
  for (Past& past : histories_) {
    while (past.at < past.entries.size() &&
           past.entries[past.at].last_step < info.step) {
      ++past.at;
    }
    const HistoryEntry* const entry =
        past.at < past.entries.size() ? &past.entries[past.at] : nullptr;
    if (entry != nullptr && entry->first_step <= info.step &&
        entry->leaf.is_leaf() && !entry->leaf.tie_to && IsWanted(entry->leaf)) {
      Put(entry->leaf, &entry->detail);
    } else {
      Remove(past.name);
    }
  }
}

absl::Status LeafSearch::Look(const Store& store,
                              const std::vector<StepInfo>& steps) {
  CKPTREE_RETURN_IF_ERROR(Bind(steps));
  if (of_leaves_) LoadHistories(store, steps);
  const StepInfo* before = nullptr;
  bool before_is_loaded = false;
  for (const StepInfo& info : steps) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    step_values_ = StepValues(info, before);
    changed_since_ += info.changed_leaves;
    if (!of_leaves_) {
      CKPTREE_ASSIGN_OR_RETURN(const bool holds, Holds(nullptr));
      if (holds) Hit(info, "", &steps_found_);
      ++looked_;
      before = &info;
      continue;
    }
    // The newest one is asked in any case: what is wrong with a condition is
    // said then.
    if (&info != &steps.back() && CannotHold(info)) {
      ++looked_;
      before = &info;
      before_is_loaded = false;
      continue;
    }
    if (of_before_ && before != nullptr && !before_is_loaded) {
      CKPTREE_RETURN_IF_ERROR(Load(store, *before).status());
    }
    CKPTREE_ASSIGN_OR_RETURN(const bool there, Load(store, info));
    if (!there) continue;
    ++looked_;
    before = &info;
    before_is_loaded = true;
    CKPTREE_RETURN_IF_ERROR(AskLeaves(info));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LeafSearch::Load(const Store& store,
                                      const StepInfo& info) {
  if (!histories_.empty()) {
    LoadFromHistories(info);
    return true;
  }
  absl::StatusOr<Step> step = store.OpenStep(AtStep(info.step, info.branch));
  if (IsStepGone(step.status())) return false;
  CKPTREE_RETURN_IF_ERROR(step.status());
  ++turn_;
  // To compare two steps takes two records of each leaf that differs.
  const bool little = step_ && changed_since_ * 2 < info.leaf_count;
  CKPTREE_RETURN_IF_ERROR(little ? LoadChanges(*step) : LoadAll(*step));
  if (leaf_count_ != info.leaf_count) CKPTREE_RETURN_IF_ERROR(LoadAll(*step));
  step_ = *std::move(step);
  changed_since_ = 0;
  return true;
}

bool LeafSearch::IsWanted(const LeafInfo& leaf) const {
  return globs_.empty() ||
         std::any_of(globs_.begin(), globs_.end(), [&](const auto& glob) {
           return MatchesGlob(glob, leaf.name);
         });
}

absl::StatusOr<std::vector<LeafInfo>> LeafSearch::Wanted(
    const Step& step) const {
  std::vector<LeafInfo> infos;
  if (named_.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(infos, step.Leaves());
  }
  for (const Path& path : named_) {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> info, step.Find(path));
    if (info) infos.push_back(*std::move(info));
  }
  std::erase_if(infos, [this](const LeafInfo& leaf) {
    return !leaf.is_leaf() || !IsWanted(leaf);
  });
  return infos;
}

absl::Status LeafSearch::LoadAll(const Step& step) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> infos, Wanted(step));
  leaf_count_ = step.info().leaf_count;
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
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  Leaf& leaf = leaves_[place->second];
  leaf.there = false;
  leaf.holds = false;
  leaf.values.clear();
  leaf.before.clear();
}

absl::StatusOr<bool> LeafSearch::Holds(const Leaf* leaf) const {
  const Values* const before = leaf == nullptr          ? nullptr
                               : leaf->changed == turn_ ? &leaf->before
                                                        : &leaf->values;
  const absl::StatusOr<bool> holds =
      condition_.Holds([&](std::string_view name) -> const Json& {
        const Values* values = leaf == nullptr ? nullptr : &leaf->values;
        if (IsOfLeafBefore(name)) {
          name.remove_prefix(kBefore.size());
          values = before;
        } else if (leaf == nullptr || !IsLeafName(name)) {
          const auto value = step_values_.find(name);
          return value == step_values_.end() ? Nothing() : value->second;
        }
        if (values == nullptr || values->empty()) return Nothing();
        const auto place = std::find(names_.begin(), names_.end(), name);
        return (*values)[static_cast<std::size_t>(place - names_.begin())];
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

absl::Status LeafSearch::AskLeaves(const StepInfo& info) {
  for (Leaf& leaf : leaves_) {
    if (!leaf.there) continue;
    // Those of which nothing differs from when they were asked last have the
    // same answer.
    const bool again = of_steps_ || leaf.changed > asked_turn_ ||
                       (of_before_ && leaf.changed == asked_turn_);
    if (again) {
      CKPTREE_ASSIGN_OR_RETURN(leaf.holds, Holds(&leaf));
    }
    if (!leaf.holds) continue;
    const bool first = leaf.found == kNone;
    Hit(info, leaf.info.name, &leaf.found);
    if (!first) continue;
    if (!needs_details_ && histories_.empty()) {
      CKPTREE_ASSIGN_OR_RETURN(const LeafDetail detail,
                               step_->Detail(leaf.info.path));
      leaf.statistics = detail.statistics;
    }
    found_[leaf.found].at_first = leaf.statistics;
  }
  asked_turn_ = turn_;
  return absl::OkStatus();
}

}  // namespace ckptree::tools
