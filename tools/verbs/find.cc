// SPDX-License-Identifier: Apache-2.0

// `ckptree find`: the leaves for which a condition held, and in which steps.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/expression.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/verbs/leaf_search.h"

namespace ckptree::tools {
namespace {

// A condition of `nan` is of the elements of leaves, also where a metric is
// called so.
void NoteMetricsOfThatName(Session& session,
                           const std::vector<std::string>& names,
                           const std::vector<StepInfo>& steps) {
  for (const std::string& name : names) {
    const std::string_view before = name.starts_with(kBefore) ? kBefore : "";
    const std::string plain = name.substr(before.size());
    if (!IsOwnName(plain)) continue;
    const auto has_it = [&](const StepInfo& info) {
      return std::ranges::any_of(info.metrics, [&](const auto& metric) {
        return metric.first == plain;
      });
    };
    if (!std::ranges::any_of(steps, has_it)) continue;
    session.Note(absl::StrFormat(
        "`%s` is that of leaves and steps; the metric of that name is "
        "`%smetrics.%s`",
        name, before, plain));
  }
}

// An array without statistics has no such number: that it is not found says
// nothing of its values then.
void NoteLeavesWithoutStatistics(Session& session,
                                 const std::vector<std::string>& names,
                                 const std::vector<StepInfo>& steps,
                                 const std::optional<StepInfo>& earlier) {
  if (!std::ranges::any_of(names, IsStatistic)) return;
  std::uint64_t most = 0;
  bool differ = false;
  std::size_t unknown = 0;
  const auto look = [&](const StepInfo& info) {
    if (info.unknown_leaves == 0) return;
    differ = differ || (unknown > 0 && info.unknown_leaves != most);
    most = std::max(most, info.unknown_leaves);
    ++unknown;
  };
  if (earlier) look(*earlier);
  std::ranges::for_each(steps, look);
  if (unknown == 0) return;
  session.Note(absl::StrFormat(
      "%s%s no statistics in %s: saved with statistics off, so that nothing "
      "is known of their values",
      differ ? "up to " : "",
      most == 1 ? "1 leaf has" : absl::StrFormat("%d leaves have", most),
      CountText(unknown, "step", "steps")));
}

// What `prev` is in the first of `steps`: the range says which steps are asked,
// not which one is before them.
absl::StatusOr<std::optional<StepInfo>> StepBefore(
    Session& session, const std::vector<StepInfo>& steps) {
  std::optional<StepInfo> before;
  if (steps.empty()) return before;
  CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> all,
                           StepsOfBranch(session, steps.front().branch));
  for (StepInfo& info : all) {
    if (info.step >= steps.front().step) break;
    before = std::move(info);
  }
  // As `diff` has it: the first of a fork comes from a step of another branch.
  if (!before && !steps.front().branch.empty()) {
    return BaseOf(session, steps.front());
  }
  return before;
}

// kNotFound: of what `globs` name none of the steps has any leaf.
absl::Status CheckKeys(Session& session, const std::vector<StepInfo>& steps,
                       const std::vector<std::string>& globs) {
  const Interruptible interruptible;
  for (const std::string& glob : globs) {
    absl::Status missing;  // As the newest step says it.
    bool found = steps.empty();
    for (auto info = steps.rbegin(); info != steps.rend() && !found; ++info) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      const absl::StatusOr<Step> step =
          session.OpenStep(AtStep(info->step, info->branch));
      if (!step.ok()) continue;  // Removed since.
      CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves,
                               step->Leaves(glob));
      found = !leaves.empty();
      if (found || !missing.ok()) continue;
      missing = FindSubtree(*step, glob).status();
    }
    if (!found) return missing;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunFind(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  absl::StatusOr<Expression> condition = Expression::Parse(session.words()[0]);
  if (!condition.ok()) return WithHint(condition.status(), kWhereHint);
  const std::vector<std::string> globs =
      PlainKeys(session.arguments().All("keys"));
  for (const std::string& glob : globs) {
    if (absl::Status status = ValidateGlob(glob); !status.ok()) {
      return WithHint(status, "`*` is any run in one part, `**` any parts");
    }
  }
  const absl::StatusOr<std::vector<StepInfo>> steps =
      FindSteps(session, session.words().size() > 1 ? session.words()[1] : "..",
                session.arguments().Get("branch", ""));
  if (!steps.ok()) return steps.status();
  NoteMetricsOfThatName(session, condition->Names(), *steps);
  std::optional<StepInfo> earlier;
  const auto of_before = [](const std::string& name) {
    return name.starts_with(kBefore);
  };
  // Without a range the first step of all is asked, of a fork that before it.
  if ((session.words().size() > 1 || session.arguments().Has("branch")) &&
      std::ranges::any_of(condition->Names(), of_before)) {
    CKPTREE_ASSIGN_OR_RETURN(earlier, StepBefore(session, *steps));
  }
  NoteLeavesWithoutStatistics(session, condition->Names(), *steps, earlier);
  LeafSearch search(*std::move(condition), globs);

  Table table;
  table.schema = "ckptree.find/1";
  table.rows_name = "found";
  table.extra = {{"branch", steps->empty() ? "" : steps->front().branch},
                 {"condition", session.words()[0]}};
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
  // A row is as it will be, but for its last step and its number of steps.
  const bool needs_end =
      std::ranges::any_of(table.columns, [&](const Column& column) {
        return (column.name == "last" || column.name == "steps") &&
               options->Needs(column);
      });
  const auto rows = [&] {
    return needs_end ? search.settled() : search.found().size();
  };
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  bool more = true;
  {
    const Interruptible interruptible;
    CKPTREE_RETURN_IF_ERROR(search.Begin(**store, *steps, needs_end,
                                         earlier ? &*earlier : nullptr));
    while (more && rows() == 0) {
      CKPTREE_ASSIGN_OR_RETURN(more, search.More());
    }
  }
  table.late_rows = rows();
  table.ending = [&]() -> absl::StatusOr<Json> {
    const Interruptible interruptible;
    while (more) {
      CKPTREE_ASSIGN_OR_RETURN(more, search.More());
    }
    return Json::object({{"steps_searched", search.looked()}});
  };
  if (more) {
    table.more_rows = [&](std::size_t,
                          std::size_t* late_rows) -> absl::StatusOr<bool> {
      const Interruptible interruptible;
      CKPTREE_ASSIGN_OR_RETURN(more, search.More());
      *late_rows = rows();
      return more;
    };
  }
  const std::vector<bool> needed = options->NeedsOf(table.columns);
  table.make_row = [&](std::size_t i, std::vector<Cell>* cells) {
    const LeafSearch::Found& found = search.found()[i];
    RowMaker row(needed, cells);
    row.Add(
        [&] { return search.of_leaves() ? TextCell(found.key) : NoCell(); });
    row.Add([&] { return StepCell(found.first); });
    row.Add([&] { return StepCell(found.last); });
    row.Add([&] { return CountCell(found.steps); });
    const StatisticsCells statistics(found.at_first);
    for (const std::string_view name : {"l2", "min", "max", "nan", "inf"}) {
      row.Add([&] { return statistics.Of(name); });
    }
  };
  const bool any = table.late_rows > 0;
  // Told of a key that is nowhere, as other commands tell it.
  if (!any && search.of_leaves()) {
    CKPTREE_RETURN_IF_ERROR(CheckKeys(session, *steps, globs));
  }
  if (any || options->format != Format::kTable) {
    if (absl::Status status = session.Print(std::move(table), *options);
        !status.ok()) {
      return status;
    }
  }
  if (!any) {
    session.Note(absl::StrFormat("nothing found in %s",
                                 CountText(search.looked(), "step", "steps")));
  }
  return any ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
