// SPDX-License-Identifier: Apache-2.0

// `ckptree find`: the leaves for which a condition held, and in which steps.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/expression.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

constexpr std::string_view kWhereHint =
    "`ckptree help where` shows what a condition is";

// What a condition may say of a leaf; with "prev." before it, of the same leaf
// in the listed step before.
constexpr std::string_view kLeafNames[] = {
    "key",  "kind", "dtype", "shape", "bytes", "since", "count", "l2",
    "mean", "std",  "min",   "max",   "nan",   "inf",   "zeros"};
// And of a step.
constexpr std::string_view kStepNames[] = {
    "step",          "branch", "leaves", "new_bytes",
    "logical_bytes", "pinned", "tags",   "note"};

using Values = std::map<std::string, Json, std::less<>>;

Values StepValues(const StepInfo& info) {
  Values values = {{"step", info.step},
                   {"branch", info.branch},
                   {"leaves", info.leaf_count},
                   {"new_bytes", info.new_bytes},
                   {"logical_bytes", info.logical_bytes},
                   {"pinned", info.pinned},
                   {"tags", info.tags},
                   {"note", info.note}};
  for (const auto& [name, value] : info.metrics) {
    values.emplace(name, value);
    values.emplace("metrics." + name, value);
  }
  return values;
}

Values LeafValues(const LeafInfo& leaf, const LeafDetail& detail) {
  Values values = {{"key", leaf.name},
                   {"kind", std::string(Name(leaf.kind))},
                   {"bytes", detail.bytes},
                   {"since", detail.since_step}};
  if (leaf.dtype != DType::kNone) {
    values["dtype"] = std::string(Name(leaf.dtype));
    values["shape"] = leaf.shape;
  }
  if (detail.statistics) {
    values["count"] = detail.statistics->count;
    const std::vector<std::string_view> names = {"l2",  "mean", "std", "min",
                                                 "max", "nan",  "inf", "zeros"};
    std::vector<Cell> cells = StatisticsCells(detail.statistics).Take(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
      values[std::string(names[i])] = std::move(cells[i].value);
    }
  }
  return values;
}

// A leaf as it was in the listed step before, or the step itself (no key).
struct Found {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::uint64_t steps = 0;
  std::optional<StatisticsCells> at_first;
};

class Search {
 public:
  Search(Expression condition, std::vector<std::string> globs)
      : condition_(std::move(condition)), globs_(std::move(globs)) {
    for (const std::string& name : condition_.Names()) {
      const std::string_view plain =
          name.starts_with("prev.") ? std::string_view(name).substr(5) : name;
      of_leaves_ |= std::find(std::begin(kLeafNames), std::end(kLeafNames),
                              plain) != std::end(kLeafNames);
    }
  }

  absl::Status Bind(const std::vector<StepInfo>& steps) {
    std::vector<std::string> names(std::begin(kLeafNames),
                                   std::end(kLeafNames));
    for (const std::string_view name : kLeafNames) {
      names.push_back("prev." + std::string(name));
    }
    names.insert(names.end(), std::begin(kStepNames), std::end(kStepNames));
    for (const StepInfo& step : steps) {
      for (const auto& [metric, value] : step.metrics) {
        if (std::find(names.begin(), names.end(), metric) == names.end()) {
          names.push_back(metric);
        }
        const std::string long_name = "metrics." + metric;
        if (std::find(names.begin(), names.end(), long_name) == names.end()) {
          names.push_back(long_name);
        }
      }
    }
    return WithHint(condition_.Bind(names), kWhereHint);
  }

  absl::Status Look(const Step& step) {
    step_values_ = StepValues(step.info());
    if (!of_leaves_) return Ask("", step.step(), {}, nullptr, nullptr);
    absl::StatusOr<std::vector<LeafInfo>> leaves = step.Leaves();
    if (!leaves.ok()) return leaves.status();
    std::erase_if(*leaves, [&](const LeafInfo& leaf) {
      return !leaf.is_leaf() ||
             (!globs_.empty() && std::none_of(globs_.begin(), globs_.end(),
                                              [&](const std::string& glob) {
                                                return MatchesGlob(glob,
                                                                   leaf.name);
                                              }));
    });
    const absl::StatusOr<std::vector<LeafDetail>> details =
        step.Details(*leaves);
    if (!details.ok()) return details.status();
    std::map<std::string, Values> now;
    for (std::size_t i = 0; i < leaves->size(); ++i) {
      const LeafInfo& leaf = (*leaves)[i];
      const LeafDetail& detail = (*details)[i];
      Values values = LeafValues(leaf, detail);
      const auto before = before_.find(leaf.name);
      absl::Status status =
          Ask(leaf.name, step.step(), detail.statistics, &values,
              before == before_.end() ? nullptr : &before->second);
      if (!status.ok()) return status;
      now.emplace(leaf.name, std::move(values));
    }
    before_ = std::move(now);
    return absl::OkStatus();
  }

  // In the order in which they were found.
  std::vector<std::pair<std::string, Found>> Take() {
    std::vector<std::pair<std::string, Found>> found;
    for (const std::string& key : order_) {
      found.emplace_back(key, std::move(found_[key]));
    }
    return found;
  }
  bool of_leaves() const { return of_leaves_; }

 private:
  absl::Status Ask(const std::string& key, std::int64_t step,
                   const std::optional<Statistics>& statistics,
                   const Values* leaf, const Values* before) {
    static const Json kNothing;
    const auto field = [&](std::string_view name) -> const Json& {
      const Values* values = &step_values_;
      if (name.starts_with("prev.")) {
        name.remove_prefix(5);
        values = before;
      } else if (std::find(std::begin(kLeafNames), std::end(kLeafNames),
                           name) != std::end(kLeafNames)) {
        values = leaf;
      }
      if (values == nullptr) return kNothing;
      const auto value = values->find(name);
      return value == values->end() ? kNothing : value->second;
    };
    const absl::StatusOr<bool> holds = condition_.Holds(field);
    if (!holds.ok()) return WithHint(holds.status(), kWhereHint);
    if (!*holds) return absl::OkStatus();
    Found& found = found_[key];
    if (found.steps++ == 0) {
      order_.push_back(key);
      found.first = step;
      found.at_first.emplace(statistics);
    }
    found.last = step;
    return absl::OkStatus();
  }

  Expression condition_;
  std::vector<std::string> globs_;
  bool of_leaves_ = false;
  Values step_values_;
  std::map<std::string, Values> before_;  // By key.
  std::map<std::string, Found> found_;
  std::vector<std::string> order_;
};

}  // namespace

absl::StatusOr<int> RunFind(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  absl::StatusOr<Expression> condition = Expression::Parse(session.words()[0]);
  if (!condition.ok()) return WithHint(condition.status(), kWhereHint);
  std::vector<std::string> globs = session.arguments().All("keys");
  for (const std::string& glob : globs) {
    if (absl::Status status = ValidateGlob(glob); !status.ok()) {
      return WithHint(status, "`*` is any run in one part, `**` any parts");
    }
  }
  const absl::StatusOr<std::vector<StepInfo>> steps =
      FindSteps(session, session.words().size() > 1 ? session.words()[1] : "..",
                session.arguments().Get("branch", ""));
  if (!steps.ok()) return steps.status();
  Search search(*std::move(condition), std::move(globs));
  if (absl::Status status = search.Bind(*steps); !status.ok()) return status;
  const Interruptible interruptible;
  std::uint64_t looked = 0;
  for (const StepInfo& info : *steps) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    const absl::StatusOr<Store*> store = session.OpenStore();
    if (!store.ok()) return store.status();
    const absl::StatusOr<Step> step =
        (*store)->OpenStep(AtStep(info.step, info.branch));
    if (IsStepGone(step.status())) continue;  // Removed since.
    if (!step.ok()) return step.status();
    if (absl::Status status = search.Look(*step); !status.ok()) return status;
    ++looked;
  }

  Table table;
  table.schema = "ckptree.find/1";
  table.rows_name = "found";
  table.extra = {{"branch", steps->empty() ? "" : steps->front().branch},
                 {"condition", session.words()[0]},
                 {"steps_searched", looked}};
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "first", .title = "FIRST", .right = true},
                   {.name = "last", .title = "LAST", .right = true},
                   {.name = "steps", .title = "STEPS", .right = true},
                   {.name = "l2", .title = "L2", .right = true},
                   {.name = "min", .title = "MIN", .right = true},
                   {.name = "max", .title = "MAX", .right = true},
                   {.name = "nan", .title = "NAN", .right = true},
                   {.name = "inf", .title = "INF", .right = true}};
  if (!search.of_leaves()) {
    for (Column& column : table.columns) {
      if (column.name != "first" && column.name != "last" &&
          column.name != "steps") {
        column.title.clear();
      }
    }
  }
  for (auto& [key, found] : search.Take()) {
    std::vector<Cell> row = {search.of_leaves() ? TextCell(key) : NoCell(),
                             StepCell(found.first), StepCell(found.last),
                             CountCell(found.steps)};
    for (Cell& cell : found.at_first->Take({"l2", "min", "max", "nan", "inf"}))
      row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  const bool any = !table.rows.empty();
  if (any || options->format != Format::kTable) {
    if (absl::Status status = session.Print(std::move(table), *options);
        !status.ok()) {
      return status;
    }
  }
  if (!any) {
    session.Note(absl::StrFormat("nothing found in %s",
                                 CountText(looked, "step", "steps")));
  }
  return any ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
