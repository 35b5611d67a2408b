// `ckptree history`, `ckptree diff` and `ckptree blame`: what became of the
// leaves.

#include "ckptree/history.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/command.h"
#include "tools/failure.h"
#include "tools/interrupt.h"
#include "tools/leaf_cells.h"
#include "tools/quantity.h"
#include "tools/step_range.h"
#include "tools/target.h"

namespace ckptree::tools {
namespace {

// Of a bool, int or float; nothing else.
absl::StatusOr<Cell> ScalarCell(const Step& step, const LeafInfo& leaf) {
  const bool scalar =
      leaf.kind == "bool" || leaf.kind == "int" || leaf.kind == "float";
  if (!scalar) return NoCell();
  const absl::StatusOr<LeafValue> value = step.Value(leaf.path);
  if (!value.ok()) return value.status();
  if (leaf.kind == "bool") return TextCell(*value->Bool() ? "true" : "false");
  if (leaf.kind == "float") return NumberCell(*value->Float());
  const std::int64_t number = *value->Int();
  return Cell{Json(number), absl::StrFormat("%d", number)};
}

// The name of one leaf, as a path; what FindTarget says otherwise.
absl::StatusOr<Path> OneLeaf(const Step& step, std::string_view key) {
  const absl::StatusOr<Target> target = FindTarget(step, key);
  if (!target.ok()) return target.status();
  if (target->leaves.size() != 1 || !target->slice.empty()) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` is not the name of one leaf", Escape(key))),
                    "`ckptree ls` lists the leaves");
  }
  return target->leaves[0].path;
}

struct Range {
  HistoryOptions options;
  std::optional<StepInfo> last;  // The last of its steps.
};

absl::StatusOr<Range> RangeOf(Session& session, std::string_view word) {
  const absl::StatusOr<std::vector<StepInfo>> steps = FindSteps(session, word);
  if (!steps.ok()) return steps.status();
  Range range;
  if (steps->empty()) return range;
  range.options.line = steps->front().line;
  range.options.first = steps->front().step;
  range.options.last = steps->back().step;
  range.last = steps->back();
  return range;
}

std::string_view KindName(LeafChange::Kind kind) {
  switch (kind) {
    case LeafChange::Kind::kAdded:
      return "added";
    case LeafChange::Kind::kRemoved:
      return "removed";
    case LeafChange::Kind::kChanged:
      return "changed";
    case LeafChange::Kind::kRetyped:
      return "retyped";
  }
  return "?";
}

Cell NormCell(const std::optional<LeafDetail>& detail) {
  if (!detail || !detail->statistics || detail->statistics->finite() == 0) {
    return NoCell();
  }
  return NumberCell(detail->statistics->l2());
}

Table DiffTable(const DiffReport& report, const TableOptions& options) {
  Table table;
  table.schema = "ckptree.diff/1";
  table.rows_name = "changes";
  table.columns = {{.name = "change", .title = "CHANGE"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "before", .title = "BEFORE"},
                   {.name = "after", .title = "AFTER"},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "l2_before", .title = "L2 BEFORE", .right = true},
                   {.name = "l2_after", .title = "L2 AFTER", .right = true}};
  for (const LeafChange& change : report.changes) {
    const auto& detail =
        change.after_detail ? change.after_detail : change.before_detail;
    const bool typed = change.kind == LeafChange::Kind::kChanged;
    table.rows.push_back(
        {TextCell(KindName(change.kind)), TextCell(change.name),
         change.before ? TypeCell(*change.before) : NoCell(),
         change.after && !typed ? TypeCell(*change.after) : NoCell(),
         BytesCell(detail->bytes, options.exact_bytes),
         NormCell(change.before_detail), NormCell(change.after_detail)});
  }
  return table;
}

}  // namespace

absl::StatusOr<int> RunHistory(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Range> range =
      RangeOf(session, session.words().size() > 1 ? session.words()[1] : "..");
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
      session.OpenStep(AtStep(range->last->step, range->last->line));
  if (!newest.ok()) return newest.status();
  absl::StatusOr<Path> path = OneLeaf(*newest, key);
  if (absl::IsNotFound(path.status())) {
    const absl::StatusOr<Path> typed = Path::Parse(key);
    if (typed.ok() && !typed->empty() &&
        History(**store, *typed, range->options).ok()) {
      path = typed;
    }
  }
  if (!path.ok()) return path.status();
  HistoryOptions asked = range->options;
  const Interruptible interruptible;
  asked.cancelled = Interrupted;
  const absl::StatusOr<std::vector<HistoryEntry>> entries =
      History(**store, *path, asked);
  if (!entries.ok()) return entries.status();

  Table table;
  table.schema = "ckptree.history/1";
  table.rows_name = "values";
  table.extra = {{"key", path->Text()}, {"line", range->options.line}};
  table.columns = {{.name = "step", .title = "STEP", .right = true},
                   {.name = "last_step", .title = "TO", .right = true},
                   {.name = "time", .title = "AGE", .right = true},
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
  const absl::Time now = absl::Now();
  for (const HistoryEntry& entry : *entries) {
    const absl::StatusOr<Step> step =
        (*store)->Restore(AtStep(entry.first_step, range->options.line));
    absl::StatusOr<Cell> value =
        step.ok() ? ScalarCell(*step, entry.leaf) : NoCell();
    if (!value.ok()) return value.status();
    Cell time = TextCell(AgeText(entry.begun_ns, now));
    time.value = TimeText(entry.begun_ns);
    std::vector<Cell> row = {StepCell(entry.first_step),
                             StepCell(entry.last_step), std::move(time),
                             TypeCell(entry.leaf), *std::move(value)};
    StatisticsCells cells(entry.detail.statistics);
    for (Cell& cell : cells.Take({"l2", "mean", "min", "max", "nan", "inf"})) {
      row.push_back(std::move(cell));
    }
    row.push_back(CountCell(entry.steps));
    row.push_back(TextCell(entry.detail.digest));
    table.rows.push_back(std::move(row));
  }
  // Newest first, as `log`.
  std::reverse(table.rows.begin(), table.rows.end());
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

absl::StatusOr<int> RunDiff(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  std::optional<Step> steps[2];
  std::string key;
  for (int i = 0; i < 2; ++i) {
    // One REV: with the save before it.
    const std::size_t word = session.words().size() > 1
                                 ? static_cast<std::size_t>(i)
                                 : std::size_t{0};
    absl::StatusOr<Address> address = ParseAddress(session.words()[word]);
    if (!address.ok()) return address.status();
    if (session.words().size() == 1 && i == 0) ++address->step.back;
    if (!address->key.empty()) key = address->key;
    absl::StatusOr<Step> step = session.OpenStep(address->step);
    if (!step.ok()) return step.status();
    steps[i].emplace(*std::move(step));
  }
  absl::StatusOr<DiffReport> report = Diff(*steps[0], *steps[1]);
  if (!report.ok()) return report.status();
  if (!key.empty()) {
    // What the key names in either of them.
    std::vector<std::string> names;
    bool found = false;
    for (const auto& step : steps) {
      const auto leaves = FindSubtree(*step, key);
      if (!leaves.ok()) continue;
      found = true;
      for (const LeafInfo& leaf : *leaves) names.push_back(leaf.name);
    }
    if (!found) return FindSubtree(*steps[1], key).status();
    std::sort(names.begin(), names.end());
    std::erase_if(report->changes, [&names](const LeafChange& change) {
      return !std::binary_search(names.begin(), names.end(), change.name);
    });
  }
  const bool people = options->format == Format::kTable;
  const auto name = [](const Step& step) {
    return StepText(step.info().line, step.step());
  };
  if (!people || !report->changes.empty()) {
    Table table = DiffTable(*report, *options);
    table.extra = {{"before", name(*steps[0])},
                   {"after", name(*steps[1])},
                   {"same", report->same}};
    if (absl::Status status = session.Print(std::move(table), *options);
        !status.ok()) {
      return status;
    }
  }
  if (people) {
    session.out().Write(absl::StrFormat(
        "%s -> %s: %s%s\n", name(*steps[0]), name(*steps[1]),
        report->changes.empty()
            ? std::string("no difference")
            : CountText(report->changes.size(), "difference", "differences"),
        key.empty() ? absl::StrFormat(", %d leaves are the same", report->same)
                    : ""));
  }
  return report->changes.empty() ? kExitOk : kExitNegative;
}

absl::StatusOr<int> RunBlame(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().empty() ? "" : session.words()[0]);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const absl::StatusOr<std::vector<LeafInfo>> wanted =
      FindSubtree(*step, address->key);
  if (!wanted.ok()) return wanted.status();
  std::vector<std::string> names;
  for (const LeafInfo& leaf : *wanted) names.push_back(leaf.name);
  std::sort(names.begin(), names.end());
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<BlameEntry>> entries = Blame(**store, *step);
  if (!entries.ok()) return entries.status();

  Table table;
  table.schema = "ckptree.blame/1";
  table.rows_name = "leaves";
  table.extra = {{"step", step->step()}, {"line", step->info().line}};
  table.columns = {{.name = "since", .title = "SINCE", .right = true},
                   {.name = "listed", .title = "LISTED"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE"},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "version"}};
  for (const BlameEntry& entry : *entries) {
    if (!std::binary_search(names.begin(), names.end(), entry.leaf.name)) {
      continue;
    }
    Cell listed;
    listed.value = entry.listed;
    listed.text = entry.listed ? "yes" : "no";
    table.rows.push_back({StepCell(entry.detail.since_step), std::move(listed),
                          TextCell(entry.leaf.name), TypeCell(entry.leaf),
                          BytesCell(entry.detail.bytes, options->exact_bytes),
                          CountCell(entry.detail.since_version)});
  }
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace ckptree::tools
