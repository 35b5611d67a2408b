// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/log_table.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/output/clock.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

Cell Notes(const StepInfo& step) {
  std::string text;
  const auto add = [&](const std::string& note) {
    if (!text.empty()) text += "; ";
    text += note;
  };
  Tone tone = Tone::kPlain;
  if (step.nonfinite_leaves > 0) {
    tone = Tone::kBad;
    const char* what = step.nan_count == 0   ? "Inf"
                       : step.inf_count == 0 ? "NaN"
                                             : "NaN and Inf";
    add(absl::StrFormat("%s in %s", what,
                        CountText(step.nonfinite_leaves, "leaf", "leaves")));
  }
  if (step.pinned) add("pinned");
  if (!step.note.empty()) add(step.note);
  return TextCell(text, tone);
}

Cell Tags(const StepInfo& step) {
  std::string text;
  for (const std::string& tag : step.tags) {
    text += (text.empty() ? "@" : " @") + tag;
  }
  Cell cell = TextCell(text);
  cell.value = step.tags;
  return cell;
}

std::vector<Column> LogColumns(const std::vector<std::string>& metrics) {
  std::vector<Column> columns = {
      {.name = "step", .title = "STEP", .right = true},
      {.name = "committed", .title = "AGE", .time = true},
      {.name = "new_bytes", .title = "NEW", .right = true},
      {.name = "shared_bytes", .title = "SHARED", .right = true},
      {.name = "leaves", .title = "LEAVES", .right = true},
  };
  std::vector<Column> behind = {
      {.name = "metrics", .flat = false},
      {.name = "tags", .title = "TAGS", .elide = true},
      {.name = "notes", .title = "NOTES", .elide = true, .json = false},
  };
  for (const char* name :
       {"branch", "version", "base", "changed_leaves", "logical_bytes", "nan",
        "inf", "nonfinite_leaves", "pinned", "digest", "saved_by", "note"}) {
    behind.push_back({.name = name});
  }
  behind.push_back({.name = "begun", .time = true});
  const auto is_taken = [&](std::string_view name) {
    const auto has_it = [&](const Column& c) { return c.name == name; };
    return std::ranges::any_of(columns, has_it) ||
           std::ranges::any_of(behind, has_it);
  };
  for (const std::string& metric : metrics) {
    std::string name = metric;
    while (is_taken(name)) name.insert(0, "metrics.");
    std::string title = Escape(name);
    columns.push_back({.name = std::move(name),
                       .title = std::move(title),
                       .right = true,
                       .json = false,
                       .asked = true});
  }
  columns.insert(columns.end(), behind.begin(), behind.end());
  return columns;
}

// One branch of the drawing.
struct Lane {
  std::uint64_t newest = 0;  // Versions: it is drawn between these.
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace

std::vector<std::string> MetricNames(const std::vector<StepInfo>& steps) {
  std::vector<std::string> names;
  for (const StepInfo& step : steps) {
    for (const auto& [name, value] : step.metrics) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

Table LogTable(std::span<const StepInfo> steps,
               const std::vector<std::string>& metrics, bool ages,
               const TableOptions& options, bool every) {
  Table table;
  table.schema = "ckptree.log/1";
  table.rows_name = "steps";
  table.columns = LogColumns(metrics);
  if (!ages) table.columns[1].title = "COMMITTED";
  // Rows are made for no more than is looked at: there may be many.
  struct Need {
    bool text = false;
    bool value = false;
  };
  std::vector<Need> needs;
  for (const Column& column : table.columns) {
    needs.push_back(
        {every || options.Needs(column), every || options.NeedsValues(column)});
  }
  table.late_rows = steps.size();
  table.make_row = [steps, &metrics, ages, needs, now = NowForAges(),
                    exact = options.exact_bytes](std::size_t at,
                                                 std::vector<Cell>* row) {
    const StepInfo& step = steps[at];
    const auto add = [&](auto&& make) {
      row->push_back(needs[row->size()].text ? make() : NoCell());
    };
    const auto valued = [&] { return needs[row->size()].value; };
    const auto text = [&](const std::string& of) -> Cell {
      return valued() ? TextCell(of) : Cell{Json(), Escape(of)};
    };
    add([&] { return StepCell(step.step); });
    add([&]() -> Cell {
      if (!valued() && ages) return {Json(), AgeText(step.committed, now)};
      std::string time = TimeText(step.committed);
      Json value = valued() ? Json(time) : Json();
      return {std::move(value),
              ages ? AgeText(step.committed, now) : std::move(time)};
    });
    add([&] { return BytesCell(step.new_bytes, exact); });
    add([&] {
      return BytesCell(step.logical_bytes > step.new_bytes
                           ? step.logical_bytes - step.new_bytes
                           : 0,
                       exact);
    });
    add([&] { return CountCell(step.leaf_count); });
    for (const std::string& name : metrics) {
      add([&] {
        for (const auto& [metric, value] : step.metrics) {
          if (metric == name) return NumberCell(value);
        }
        return NoCell();
      });
    }
    add([&]() -> Cell {
      Json object = Json::object();
      for (const auto& [name, value] : step.metrics) object[name] = value;
      std::string shown = JsonText(object, false);
      return {std::move(object), std::move(shown)};
    });
    add([&] { return Tags(step); });
    add([&] { return Notes(step); });
    add([&] { return text(step.branch); });
    add([&] { return CountCell(step.version); });
    add([&] { return CountCell(step.base); });
    add([&] { return CountCell(step.changed_leaves); });
    add([&] { return BytesCell(step.logical_bytes, exact); });
    add([&] { return CountCell(step.nan_count); });
    add([&] { return CountCell(step.inf_count); });
    add([&] { return CountCell(step.nonfinite_leaves); });
    add([&]() -> Cell {
      return {Json(step.pinned), step.pinned ? "yes" : "no"};
    });
    add([&] { return text(step.digest); });
    add([&] { return text(step.saved_by); });
    add([&] { return text(step.note); });
    // Of an imported step when it was saved by what wrote it.
    add([&] { return text(TimeText(step.begun)); });
  };
  return table;
}

void AddGraph(const std::vector<StepInfo>& steps,
              const std::vector<BranchInfo>& branches, bool joints,
              Table* table) {
  table->MakeRows();
  std::map<std::string, std::size_t, std::less<>> lane_of;
  std::vector<Lane> lanes;
  for (const BranchInfo& branch : branches) {
    lane_of.emplace(branch.name, lanes.size());
    lanes.emplace_back();
  }
  for (const StepInfo& step : steps) {
    const auto [at, added] = lane_of.emplace(step.branch, lanes.size());
    if (added) lanes.emplace_back();
    Lane& lane = lanes[at->second];
    lane.newest = std::max(lane.newest, step.version);
    lane.oldest = std::min(lane.oldest, step.version);
  }
  // The rows in front of which branches begin: where they were forked, or
  // nowhere where that step is not among `steps`.
  std::map<std::uint64_t, std::vector<std::size_t>> begins;
  for (const BranchInfo& branch : branches) {
    Lane& lane = lanes[lane_of[branch.name]];
    if (branch.name.empty() || lane.newest == 0) continue;
    for (const StepInfo& step : steps) {
      // Another save may have the number of the origin by now.
      if (step.version != branch.origin_version) continue;
      lane.oldest = step.version + 1;
      begins[step.version].push_back(lane_of[branch.name]);
    }
  }
  const auto draw = [&](std::uint64_t version, auto&& mark) {
    std::string text;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const bool drawn =
          lanes[i].oldest <= version && version <= lanes[i].newest;
      text += mark(i, drawn);
      text += ' ';
    }
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::vector<std::vector<Cell>> rows;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    const StepInfo& step = steps[r];
    const auto joined = begins.find(step.version);
    if (joints && joined != begins.end()) {
      std::vector<Cell> row(table->columns.size(), NoCell());
      const std::string text =
          draw(step.version, [&](std::size_t i, bool drawn) {
            const bool here =
                std::find(joined->second.begin(), joined->second.end(), i) !=
                joined->second.end();
            return here ? '/' : drawn ? '|' : ' ';
          });
      row.insert(row.begin(), {Json(), text});
      rows.push_back(std::move(row));
    }
    const std::size_t own = lane_of[step.branch];
    std::vector<Cell>& row = table->rows[r];
    row[0].text = StepText(step.branch, step.step);
    row.insert(row.begin(),
               {Json(), draw(step.version, [&](std::size_t i, bool drawn) {
                  return i == own ? '*' : drawn ? '|' : ' ';
                })});
    rows.push_back(std::move(row));
  }
  table->columns.insert(
      table->columns.begin(),
      {.name = "graph", .title = "GRAPH", .json = false, .drawn = true});
  table->columns[1].right = false;
  table->rows = std::move(rows);
}

}  // namespace ckptree::tools
