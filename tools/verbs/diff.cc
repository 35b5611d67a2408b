// SPDX-License-Identifier: Apache-2.0

// `ckptree diff`: the leaves in which two steps differ.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/history.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

Cell NormCell(const std::optional<LeafDetail>& detail) {
  return StatisticsCells(detail ? detail->statistics : std::nullopt)
      .Take({"l2"})[0];
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
        {TextCell(Name(change.kind)), TextCell(change.name),
         change.before ? TypeCell(*change.before) : NoCell(),
         change.after && !typed ? TypeCell(*change.after) : NoCell(),
         BytesCell(detail->bytes, options.exact_bytes),
         NormCell(change.before_detail), NormCell(change.after_detail)});
  }
  return table;
}

}  // namespace

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
    const absl::StatusOr<std::vector<std::string>> names =
        NamesIn({&*steps[0], &*steps[1]}, key);
    if (!names.ok()) return names.status();
    std::erase_if(report->changes, [&names](const LeafChange& change) {
      return !std::binary_search(names->begin(), names->end(), change.name);
    });
  }
  const bool people = options->format == Format::kTable;
  const auto name = [](const Step& step) {
    return StepText(step.info().branch, step.step());
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
        key.empty()
            ? absl::StrFormat(", %s the same",
                              CountText(report->same, "leaf is", "leaves are"))
            : ""));
  }
  return report->changes.empty() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
