// SPDX-License-Identifier: Apache-2.0

// `ckptree history`: the values that one leaf had over the steps.

#include "ckptree/history.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "core/engine/leaf_past.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/bars.h"
#include "tools/output/clock.h"
#include "tools/output/ending.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/scalar_cell.h"

namespace ckptree::tools {
namespace {

using internal::PastValue;

// The value of a leaf that is no array; no step is opened for others.
absl::StatusOr<Cell> ValueOf(const Store& store, const std::string& branch,
                             const PastValue& past) {
  if (!HasScalar(*past.leaf)) return NoCell();
  const absl::StatusOr<Step> step =
      store.OpenStep(AtStep(past.first_step, branch));
  if (IsStepGone(step.status())) return NoCell();  // Removed since.
  if (!step.ok()) return step.status();
  return ScalarCell(*step, *past.leaf, LeafDetail{.bytes = past.bytes});
}

// The name of one leaf, as a path; what FindTarget says otherwise.
absl::StatusOr<Path> OneLeaf(const Step& step, std::string_view key) {
  const absl::StatusOr<Target> target = FindTarget(step, key);
  if (absl::IsInvalidArgument(target.status())) {
    return WithHint(
        absl::InvalidArgumentError(target.status().message()),
        absl::StrFormat("a history is of one leaf: `ckptree ls 'latest:%s'` "
                        "lists them, `ckptree find` goes through many",
                        Escape(key)));
  }
  if (!target.ok()) return target.status();
  if (target->leaves.size() != 1 || !target->slice.empty()) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` is not the name of one leaf", Escape(key))),
                    "`ckptree ls` lists the leaves");
  }
  return target->leaves[0].path;
}

// Of the table below.
constexpr std::size_t kTimeColumn = 2;

struct Range {
  HistoryOptions options;
  std::optional<StepInfo> last;  // The last of its steps.
};

// Of all steps where there is no word.
absl::StatusOr<Range> RangeOf(Session& session, const std::string* word) {
  const std::string branch = session.arguments().Get("branch", "");
  const absl::StatusOr<std::vector<StepInfo>> steps =
      word == nullptr ? NewestOfBranch(session, branch, 1)
                      : FindSteps(session, *word, branch);
  if (!steps.ok()) return steps.status();
  Range range;
  if (word == nullptr && !steps->empty()) {
    range.last = steps->back();
    range.options.branch = branch;
    return range;
  }
  if (steps->empty()) return range;
  range.options.branch = steps->front().branch;
  range.options.first = steps->front().step;
  range.options.last = steps->back().step;
  range.last = steps->back();
  return range;
}

// Rows cost more than values: those that --limit leaves out are not made,
// where nothing needs them. The newest are shown.
std::span<const PastValue> Shown(const std::vector<PastValue>& values,
                                 const TableOptions& options, bool line_drawn) {
  const std::span<const PastValue> all(values);
  if (line_drawn || !options.limit || options.where || !options.sort.empty()) {
    return all;
  }
  return all.last(
      std::min(all.size(), static_cast<std::size_t>(*options.limit)));
}

}  // namespace

absl::StatusOr<int> RunHistory(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Range> range = RangeOf(
      session, session.words().size() > 1 ? &session.words()[1] : nullptr);
  if (!range.ok()) return range.status();
  if (!range->last.has_value()) {
    return WithHint(absl::NotFoundError("no steps there"),
                    "`ckptree log` lists the steps");
  }
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const std::string& key = session.words()[0];
  // In the newest step, or by its full name in an older one.
  const absl::StatusOr<Step> newest =
      session.OpenStep(AtStep(range->last->step, range->last->branch));
  if (!newest.ok()) return newest.status();
  absl::StatusOr<Path> path = OneLeaf(*newest, key);
  const absl::Status unknown = path.status();
  if (absl::IsNotFound(unknown)) path = Path::Parse(key);
  if (!path.ok() || (!unknown.ok() && path->empty())) return unknown;
  HistoryOptions asked = range->options;
  const Interruptible interruptible;
  asked.cancelled = Interrupted;
  absl::StatusOr<internal::LeafPast> past =
      internal::PastOf(**store, *path, asked);
  if (absl::IsNotFound(past.status()) && !unknown.ok()) return unknown;
  if (!past.ok()) return past.status();

  Table table;
  table.schema = "ckptree.history/1";
  table.rows_name = "values";
  table.extra = {{"key", path->Text()}, {"branch", range->options.branch}};
  table.columns = {
      {.name = "step", .title = "STEP", .right = true},
      {.name = "last_step", .title = "TO", .right = true},
      {.name = "time", .title = "AGE", .right = true, .time = true},
      {.name = "type", .title = "TYPE"},
      {.name = "value", .title = "VALUE", .right = true},
      {.name = "l2", .title = "L2", .right = true},
      {.name = "mean", .title = "MEAN", .right = true},
      {.name = "min", .title = "MIN", .right = true},
      {.name = "max", .title = "MAX", .right = true},
      {.name = "nan", .title = "NAN", .right = true},
      {.name = "inf", .title = "INF", .right = true},
      {.name = "steps"},
      {.name = "digest"}};
  const absl::Time now = NowForAges();
  const bool line_drawn =
      options->format == Format::kTable &&
      (session.arguments().Has("spark") || session.terminal().is_terminal);
  const std::span<const PastValue> shown =
      Shown(past->values, *options, line_drawn);
  // Of leaves that are no arrays: their steps are opened.
  std::map<std::size_t, Cell> values;
  std::vector<double> line;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const PastValue& entry = shown[i];
    Json number;
    if (HasScalar(*entry.leaf)) {
      absl::StatusOr<Cell> value =
          ValueOf(**store, range->options.branch, entry);
      if (!value.ok()) return value.status();
      number = value->value;
      values.emplace(i, *std::move(value));
    }
    if (!line_drawn) continue;
    if (!number.is_number() && !IsLargeInt(*entry.leaf) && entry.statistics) {
      number = StatisticOf(*entry.statistics, "l2");
    }
    if (number.is_number()) line.push_back(number.get<double>());
  }
  const std::vector<bool> needed = options->NeedsOf(table.columns);
  const bool timed = options->NeedsValues(table.columns[kTimeColumn]);
  table.late_rows = shown.size();
  table.make_row = [&](std::size_t at, std::vector<Cell>* row) {
    // Newest first, as `log`.
    const std::size_t i = shown.size() - 1 - at;
    const PastValue& entry = shown[i];
    RowMaker maker(needed, row);
    const auto add = [&maker](const auto& make) { maker.Add(make); };
    add([&] { return StepCell(entry.first_step); });
    add([&] { return StepCell(entry.last_step); });
    add([&]() -> Cell {
      Json time = timed ? Json(TimeText(entry.begun)) : Json();
      return {std::move(time), AgeText(entry.begun, now)};
    });
    add([&] { return TypeCell(*entry.leaf); });
    add([&] {
      const auto value = values.find(i);
      return value == values.end() ? NoCell() : value->second;
    });
    const StatisticsCells cells(*entry.leaf, entry.statistics);
    for (const std::string_view name :
         {"l2", "mean", "min", "max", "nan", "inf"}) {
      add([&] { return cells.Of(name); });
    }
    add([&] { return CountCell(entry.steps); });
    add([&] { return TextCell(entry.digest ? entry.digest->Hex() : ""); });
  };
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  const Terminal& terminal = session.terminal();
  if (line_drawn && line.size() > 1) {
    const bool value = !past->values.back().statistics;
    session.out().Write(absl::StrFormat(
        "%s  %s\n", value ? "VALUE" : "L2",
        Sparkline(line, std::clamp(terminal.width - 8, 8, 60), terminal.utf8)));
  }
  KeepToTheEnd(*std::move(past));
  return kExitOk;
}

}  // namespace ckptree::tools
