// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/sql_tables.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/engine/tied_leaves.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/verbs/leaf_in_steps.h"

namespace ckptree::tools {
namespace {

SqlValue Whole(std::uint64_t value) { return static_cast<std::int64_t>(value); }
SqlValue Words(std::string_view text) { return std::string(text); }
// SQLite has no NaN: it is NULL, as avg() and max() leave it out then, and no
// text, which would be larger than each number. Columns named nan say where.
SqlValue Real(double value) {
  if (std::isnan(value)) return std::monostate();
  return value;
}
SqlValue OrNull(std::string text) {
  if (text.empty()) return std::monostate();
  return text;
}

// The steps that a query can mean, branch by branch.
absl::StatusOr<std::vector<StepInfo>> WantedOf(const Store& store,
                                               const SqlWanted& wanted) {
  std::vector<StepInfo> found;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    if (wanted.branch && *wanted.branch != branch.name) continue;
    if (wanted.step) {
      const absl::StatusOr<StepInfo> one =
          store.Resolve(AtStep(*wanted.step, branch.name));
      if (one.ok()) found.push_back(*one);
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> steps,
                             store.Steps(branch.name));
    if (found.empty()) {
      found = std::move(steps);
    } else {
      std::move(steps.begin(), steps.end(), std::back_inserter(found));
    }
  }
  return found;
}

// Rows that are all known at once.
class ListedRows final : public SqlRows {
 public:
  explicit ListedRows(std::vector<std::vector<SqlValue>> rows)
      : rows_(std::move(rows)) {}
  absl::StatusOr<bool> Next() override { return ++at_ <= rows_.size(); }
  SqlValue Column(int column) const override {
    return rows_[at_ - 1][static_cast<std::size_t>(column)];
  }

 private:
  const std::vector<std::vector<SqlValue>> rows_;
  std::size_t at_ = 0;
};

class StepRows final : public SqlRows {
 public:
  explicit StepRows(std::vector<StepInfo> steps) : steps_(std::move(steps)) {}
  absl::StatusOr<bool> Next() override { return ++at_ <= steps_.size(); }
  SqlValue Column(int column) const override {
    const StepInfo& info = steps_[at_ - 1];
    switch (column) {
      case 0:
        return info.branch;
      case 1:
        return info.step;
      case 2:
        return Whole(info.version);
      case 3:
        return Whole(info.base);
      case 4:
        return OrNull(TimeText(info.begun));
      case 5:
        return OrNull(TimeText(info.staged));
      case 6:
        return OrNull(TimeText(info.committed));
      case 7:
        return Whole(info.leaf_count);
      case 8:
        return Whole(info.changed_leaves);
      case 9:
        return Whole(info.logical_bytes);
      case 10:
        return Whole(info.new_bytes);
      case 11:
        return Whole(info.nan_count);
      case 12:
        return Whole(info.inf_count);
      case 13:
        return Whole(info.nonfinite_leaves);
      case 14:
        return std::int64_t{info.pinned};
      case 15:
        return OrNull(absl::StrJoin(info.tags, " "));
      case 16:
        return info.digest;
      case 17:
        return OrNull(info.note);
      default:
        return info.saved_by;
    }
  }

 private:
  const std::vector<StepInfo> steps_;
  std::size_t at_ = 0;
};

absl::StatusOr<std::unique_ptr<SqlRows>> StepsOf(const Store& store,
                                                 const SqlWanted& wanted) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> steps,
                           WantedOf(store, wanted));
  return std::make_unique<StepRows>(std::move(steps));
}

absl::StatusOr<std::unique_ptr<SqlRows>> MetricsOf(const Store& store,
                                                   const SqlWanted& wanted) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                           WantedOf(store, wanted));
  std::vector<std::vector<SqlValue>> rows;
  for (const StepInfo& info : steps) {
    for (const auto& [name, value] : info.metrics) {
      rows.push_back({info.branch, info.step, name, Real(value),
                      Whole(std::isnan(value) ? 1 : 0)});
    }
  }
  return std::make_unique<ListedRows>(std::move(rows));
}

absl::StatusOr<std::unique_ptr<SqlRows>> TagsOf(const Store& store,
                                                const SqlWanted&) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<TagInfo> tags, store.Tags());
  std::vector<std::vector<SqlValue>> rows;
  for (const TagInfo& tag : tags) {
    rows.push_back({tag.name, tag.branch, tag.step});
  }
  return std::make_unique<ListedRows>(std::move(rows));
}

SqlValue TieOf(const LeafInfo& leaf) {
  return leaf.tie_to ? SqlValue(leaf.tie_to->Text()) : SqlValue();
}

// What `stats` says of an array in a step, but for its digest.
struct ArrayInStep {
  const std::string& branch;
  std::int64_t step;
  const LeafInfo& leaf;
  const std::optional<Statistics>& statistics;
  std::uint64_t bytes;
  std::int64_t since_step;
};
constexpr int kDigestOfArray = 16;  // Its column.

SqlValue ArrayColumn(const ArrayInStep& array, int column) {
  static const Statistics kNone;
  const bool known = array.statistics.has_value();
  const Statistics& s = known ? *array.statistics : kNone;
  const auto finite = [&](double value) -> SqlValue {
    if (!known || s.finite() == 0) return std::monostate();
    return Real(value);
  };
  const auto counted = [&](std::uint64_t value) -> SqlValue {
    if (!known) return std::monostate();
    return Whole(value);
  };
  switch (column) {
    case 0:
      return array.branch;
    case 1:
      return array.step;
    case 2:
      return array.leaf.name;
    case 3:
      return Words(Name(array.leaf.dtype));
    case 4:
      return ShapeText(array.leaf.shape);
    case 5:
      return Whole(NumberCount(array.leaf));
    case 6:
      return finite(s.l2());
    case 7:
      return finite(s.mean());
    case 8:
      return finite(s.std_dev());
    case 9:
      return finite(s.min);
    case 10:
      return finite(s.max);
    case 11:
      return counted(s.nan);
    case 12:
      return counted(s.inf);
    case 13:
      return counted(s.zero);
    case 14:
      return Whole(array.bytes);
    case 15:
      return array.since_step;
    default:
      return TieOf(array.leaf);
  }
}

// The leaves of one step after the other, each step opened when it is its turn.
class LeafRows final : public SqlRows {
 public:
  LeafRows(const Store& store, std::vector<StepInfo> steps,
           std::optional<std::string> key, bool statistics)
      : store_(store),
        steps_(std::move(steps)),
        key_(std::move(key)),
        statistics_(statistics) {}

  absl::StatusOr<bool> Next() override {
    ++leaf_;
    while (leaf_ >= leaves_.size()) {
      if (next_step_ == steps_.size()) return false;
      if (Interrupted()) return absl::CancelledError("interrupted");
      CKPTREE_RETURN_IF_ERROR(Load(steps_[next_step_++]));
    }
    return true;
  }

  SqlValue Column(int column) const override {
    const StepInfo& info = steps_[next_step_ - 1];
    const LeafInfo& leaf = leaves_[leaf_];
    if (!statistics_) return LeafColumn(info, leaf, column);
    const LeafDetail& detail = details_[leaf_];
    if (column == kDigestOfArray) return detail.digest;
    return ArrayColumn({info.branch, info.step, leaf, detail.statistics,
                        detail.bytes, detail.since_step},
                       column);
  }

 private:
  static SqlValue LeafColumn(const StepInfo& info, const LeafInfo& leaf,
                             int column) {
    const bool array = HoldsArray(leaf);
    switch (column) {
      case 0:
        return info.branch;
      case 1:
        return info.step;
      case 2:
        return leaf.name;
      case 3:
        return IsLargeInt(leaf) ? Words("int") : Words(Name(leaf.kind));
      case 4:
        return array ? Words(Name(leaf.dtype)) : SqlValue();
      case 5:
        return array ? SqlValue(ShapeText(leaf.shape)) : SqlValue();
      default:
        return TieOf(leaf);
    }
  }

  absl::Status Load(const StepInfo& info) {
    leaf_ = 0;
    leaves_.clear();
    details_.clear();
    const absl::StatusOr<Step> step =
        store_.OpenStep(AtStep(info.step, info.branch));
    if (IsStepGone(step.status())) return absl::OkStatus();  // Removed since.
    CKPTREE_RETURN_IF_ERROR(step.status());
    if (key_) {
      const absl::StatusOr<Path> path = Path::Parse(*key_);
      if (!path.ok() || path->empty() || path->Text() != *key_) {
        return absl::OkStatus();
      }
      CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> leaf, step->Find(*path));
      if (leaf) leaves_.push_back(*std::move(leaf));
    } else {
      CKPTREE_ASSIGN_OR_RETURN(leaves_, step->Leaves());
    }
    std::erase_if(leaves_, [](const LeafInfo& leaf) {
      return !leaf.is_leaf() && !leaf.tie_to;
    });
    if (!statistics_) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(internal::FollowTies(*step, &leaves_));
    std::erase_if(leaves_,
                  [](const LeafInfo& leaf) { return !HoldsArray(leaf); });
    if (!leaves_.empty()) {
      CKPTREE_ASSIGN_OR_RETURN(details_, internal::DetailsOf(*step, leaves_));
    }
    return absl::OkStatus();
  }

  const Store& store_;
  const std::vector<StepInfo> steps_;
  const std::optional<std::string> key_;
  const bool statistics_;
  std::size_t next_step_ = 0;
  std::vector<LeafInfo> leaves_;
  std::vector<LeafDetail> details_;
  std::size_t leaf_ = 0;
};

absl::StatusOr<std::unique_ptr<SqlRows>> LeavesOf(const Store& store,
                                                  const SqlWanted& wanted) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> steps,
                           WantedOf(store, wanted));
  return std::make_unique<LeafRows>(store, std::move(steps), wanted.key, false);
}

// One array over all steps, without opening them.
class HistoryRows final : public SqlRows {
 public:
  // Adds the rows of one branch.
  absl::Status Add(const Store& store, const std::string& branch,
                   const Path& path) {
    CKPTREE_ASSIGN_OR_RETURN(
        LeafInSteps found,
        LeafInSteps::Read(store, path,
                          {.branch = branch, .cancelled = Interrupted}));
    rows_.reserve(rows_.size() + found.steps().size());
    for (const LeafInSteps::InStep& in : found.steps()) {
      if (HoldsArray(*in.value->leaf)) rows_.push_back({branches_.size(), in});
    }
    branches_.emplace_back(branch, std::move(found));
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next() override { return ++at_ <= rows_.size(); }
  SqlValue Column(int column) const override {
    const auto& [branch, in] = rows_[at_ - 1];
    const internal::PastValue& value = *in.value;
    if (column == kDigestOfArray) return value.digest->Hex();
    return ArrayColumn({branches_[branch].first, in.step, *value.leaf,
                        value.statistics, value.bytes, value.since_step},
                       column);
  }

 private:
  struct Row {
    std::size_t branch;
    LeafInSteps::InStep in;
  };
  std::vector<std::pair<std::string, LeafInSteps>> branches_;
  std::vector<Row> rows_;
  std::size_t at_ = 0;
};

absl::StatusOr<std::unique_ptr<SqlRows>> StatisticsRows(
    const Store& store, const SqlWanted& wanted) {
  if (!wanted.key || wanted.step) {
    CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> steps,
                             WantedOf(store, wanted));
    return std::make_unique<LeafRows>(store, std::move(steps), wanted.key,
                                      true);
  }
  auto rows = std::make_unique<HistoryRows>();
  const absl::StatusOr<Path> path = Path::Parse(*wanted.key);
  // The name of a leaf is the text of its path: others are of none.
  if (!path.ok() || path->empty() || path->Text() != *wanted.key) return rows;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    if (wanted.branch && *wanted.branch != branch.name) continue;
    CKPTREE_RETURN_IF_ERROR(rows->Add(store, branch.name, *path));
  }
  return rows;
}

constexpr SqlTable kSqlTables[] = {
    {"steps",
     "branch TEXT, step INTEGER, version INTEGER, base INTEGER, begun TEXT, "
     "staged TEXT, committed TEXT, leaves INTEGER, changed_leaves INTEGER, "
     "logical_bytes INTEGER, new_bytes INTEGER, nan INTEGER, inf INTEGER, "
     "nonfinite_leaves INTEGER, pinned INTEGER, tags TEXT, digest TEXT, "
     "note TEXT, saved_by TEXT",
     "branch, step", 0, 1, -1, StepsOf},
    {"metrics", "branch TEXT, step INTEGER, name TEXT, value REAL, nan INTEGER",
     "branch, step, name", 0, 1, -1, MetricsOf},
    {"tags", "name TEXT, branch TEXT, step INTEGER", "name", -1, -1, -1,
     TagsOf},
    {"leaves",
     "branch TEXT, step INTEGER, key TEXT, kind TEXT, dtype TEXT, shape TEXT, "
     "tie_to TEXT",
     "branch, step, key", 0, 1, 2, LeavesOf},
    {"stats",
     "branch TEXT, step INTEGER, key TEXT, dtype TEXT, shape TEXT, "
     "count INTEGER, l2 REAL, mean REAL, std REAL, min REAL, max REAL, "
     "nan INTEGER, inf INTEGER, zeros INTEGER, bytes INTEGER, since INTEGER, "
     "digest TEXT, tie_to TEXT",
     "branch, step, key", 0, 1, 2, StatisticsRows},
};

}  // namespace

std::span<const SqlTable> SqlTables() { return kSqlTables; }

}  // namespace ckptree::tools
