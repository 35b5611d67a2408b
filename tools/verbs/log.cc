// SPDX-License-Identifier: Apache-2.0

// `ckptree log`: the steps of a store.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

// Names of all metrics, in the order in which they were first used.
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
      {.name = "committed", .title = "AGE"},
      {.name = "new_bytes", .title = "NEW", .right = true},
      {.name = "shared_bytes", .title = "SHARED", .right = true},
      {.name = "leaves", .title = "LEAVES", .right = true},
  };
  for (const std::string& name : metrics) {
    const bool taken =
        std::any_of(columns.begin(), columns.end(),
                    [&](const Column& c) { return c.name == name; });
    columns.push_back({.name = taken ? "metrics." + name : name,
                       .title = Escape(name),
                       .right = true,
                       .json = false});
  }
  columns.push_back({.name = "metrics", .flat = false});
  columns.push_back({.name = "tags", .title = "TAGS", .elide = true});
  columns.push_back(
      {.name = "notes", .title = "NOTES", .elide = true, .json = false});
  for (const char* name :
       {"branch", "version", "base", "changed_leaves", "logical_bytes", "nan",
        "inf", "nonfinite_leaves", "pinned", "digest", "saved_by", "note"}) {
    columns.push_back({.name = name});
  }
  return columns;
}

}  // namespace

absl::StatusOr<int> RunLog(Session& session) {
  absl::StatusOr<TableOptions> options = ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const bool ranged = !session.words().empty();
  const std::string branch = session.arguments().Get("branch", "");
  absl::StatusOr<std::vector<StepInfo>> steps =
      ranged ? FindSteps(session, session.words()[0], branch)
             : StepsOfBranch(session, branch);
  if (!steps.ok()) return steps.status();
  std::reverse(steps->begin(), steps->end());
  if (steps->empty()) {
    session.Note(ranged ? "no steps there" : "no steps yet");
  }

  const bool ages =
      session.terminal().is_terminal && options->format == Format::kTable;
  const std::vector<std::string> metrics = MetricNames(*steps);
  Table table;
  table.schema = "ckptree.log/1";
  table.rows_name = "steps";
  table.columns = LogColumns(metrics);
  if (!ages) table.columns[1].title = "COMMITTED";
  const absl::Time now = absl::Now();
  const bool exact = options->exact_bytes;
  for (const StepInfo& step : *steps) {
    const std::uint64_t shared = step.logical_bytes > step.new_bytes
                                     ? step.logical_bytes - step.new_bytes
                                     : 0;
    const std::string time = TimeText(step.committed);
    std::vector<Cell> row = {
        StepCell(step.step),
        {Json(time), ages ? AgeText(step.committed, now) : time},
        BytesCell(step.new_bytes, exact),
        BytesCell(shared, exact),
        CountCell(step.leaf_count)};
    Json object = Json::object();
    for (const auto& [name, value] : step.metrics) object[name] = value;
    for (const std::string& name : metrics) {
      row.push_back(object.contains(name)
                        ? NumberCell(object[name].get<double>())
                        : NoCell());
    }
    row.push_back({object, JsonText(object, false)});
    row.push_back(Tags(step));
    row.push_back(Notes(step));
    row.push_back(TextCell(step.branch));
    row.push_back(CountCell(step.version));
    row.push_back(CountCell(step.base));
    row.push_back(CountCell(step.changed_leaves));
    row.push_back(BytesCell(step.logical_bytes, exact));
    row.push_back(CountCell(step.nan_count));
    row.push_back(CountCell(step.inf_count));
    row.push_back(CountCell(step.nonfinite_leaves));
    row.push_back({Json(step.pinned), step.pinned ? "yes" : "no"});
    row.push_back(TextCell(step.digest));
    row.push_back(TextCell(step.saved_by));
    row.push_back(TextCell(step.note));
    table.rows.push_back(std::move(row));
  }
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace ckptree::tools
