// SPDX-License-Identifier: Apache-2.0

// `ckptree diff`: the leaves in which two steps differ.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "ckptree/history.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/scalar_cell.h"
#include "tools/output/value_difference.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

Cell StatisticCell(const std::optional<LeafDetail>& detail,
                   std::string_view name) {
  return StatisticsCells(detail ? detail->statistics : std::nullopt)
      .Take({name})[0];
}

Cell NormCell(const std::optional<LeafDetail>& detail) {
  return StatisticCell(detail, "l2");
}

std::uint64_t NonFiniteOf(const std::optional<LeafDetail>& detail) {
  if (!detail || !detail->statistics) return 0;
  return detail->statistics->nan + detail->statistics->inf;
}

bool HasNonFinite(const DiffReport& report) {
  return std::any_of(report.changes.begin(), report.changes.end(),
                     [](const LeafChange& change) {
                       return NonFiniteOf(change.before_detail) > 0 ||
                              NonFiniteOf(change.after_detail) > 0;
                     });
}

// One side of a change: the type, and the value of what is no array.
struct Side {
  Cell type = NoCell();
  Cell value = NoCell();
};

absl::StatusOr<Side> SideOf(const Step& step,
                            const std::optional<LeafInfo>& leaf,
                            const std::optional<LeafDetail>& detail) {
  Side side;
  if (!leaf) return side;
  side.type = TypeCell(*leaf);
  if (!detail) return side;
  absl::StatusOr<Cell> value = ScalarCell(step, *leaf, *detail);
  if (!value.ok()) return value.status();
  side.value = *std::move(value);
  return side;
}

bool ComparesValues(const LeafChange& change) {
  return change.kind == LeafChange::Kind::kChanged &&
         change.before->dtype != DType::kNone;
}

absl::StatusOr<Table> DiffTable(const DiffReport& report, const Step& before,
                                const Step& after, bool values,
                                const TableOptions& options) {
  Table table;
  table.schema = "ckptree.diff/1";
  table.rows_name = "changes";
  table.columns = {{.name = "change", .title = "CHANGE"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "before", .title = "BEFORE", .elide = true},
                   {.name = "after", .title = "AFTER", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "l2_before", .title = "L2 BEFORE", .right = true},
                   {.name = "l2_after", .title = "L2 AFTER", .right = true}};
  if (values) AddValueColumns(&table);
  table.columns.push_back({.name = "before_value"});
  table.columns.push_back({.name = "after_value"});
  // Beside norms, which are of the finite elements.
  const bool any_bad = HasNonFinite(report);
  for (const char* name :
       {"nan_before", "nan_after", "inf_before", "inf_after"}) {
    std::string title = any_bad ? absl::AsciiStrToUpper(name) : "";
    std::replace(title.begin(), title.end(), '_', ' ');
    table.columns.push_back({.name = name,
                             .title = std::move(title),
                             .right = true,
                             .asked = true});
  }
  for (const LeafChange& change : report.changes) {
    const auto& detail =
        change.after_detail ? change.after_detail : change.before_detail;
    const bool typed = change.kind == LeafChange::Kind::kChanged;
    absl::StatusOr<Side> a =
        SideOf(before, change.before, change.before_detail);
    if (!a.ok()) return a.status();
    absl::StatusOr<Side> b = SideOf(after, change.after, change.after_detail);
    if (!b.ok()) return b.status();
    if (typed) b->type = NoCell();
    // People see the values, where there are any.
    for (Side* side : {&*a, &*b}) {
      if (side->value.text.empty()) continue;
      if (typed || side->type.text.empty()) {
        side->type.text = side->value.text;
      } else {
        side->type.text += " " + side->value.text;
      }
    }
    std::vector<Cell> row = {TextCell(Name(change.kind)),
                             TextCell(change.name),
                             a->type,
                             b->type,
                             BytesCell(detail->bytes, options.exact_bytes),
                             NormCell(change.before_detail),
                             NormCell(change.after_detail)};
    if (values && ComparesValues(change)) {
      const absl::StatusOr<ValueDifference> difference = CompareValues(
          before, *change.before, after, *change.after, Interrupted);
      if (!difference.ok()) return difference.status();
      row.push_back(NumberCell(difference->max_abs));
      row.push_back(NumberCell(difference->relative()));
      row.push_back({Json(difference->changed),
                     absl::StrFormat("%d of %d", difference->changed,
                                     difference->elements)});
    } else if (values) {
      row.insert(row.end(), 3, NoCell());
    }
    row.push_back(a->value);
    row.push_back(b->value);
    for (const char* name : {"nan", "inf"}) {
      row.push_back(StatisticCell(change.before_detail, name));
      row.push_back(StatisticCell(change.after_detail, name));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// A..B as git has it: A and B; an end that is left out is the latest step.
std::vector<std::string> TwoEnds(const std::vector<std::string>& words) {
  if (words.size() != 1) return words;
  const std::string& word = words[0];
  const std::size_t dots = word.find("..");
  // Behind ':' stands a key, which may have dots.
  if (dots == word.npos || word.substr(0, dots).find(':') != word.npos) {
    return words;
  }
  return {dots == 0 ? "latest" : word.substr(0, dots),
          dots + 2 == word.size() ? "latest" : word.substr(dots + 2)};
}

}  // namespace

absl::StatusOr<int> RunDiff(Session& session) {
  std::optional<FileWord> files[2];
  for (std::size_t i = 0; i < session.words().size(); ++i) {
    absl::StatusOr<std::optional<FileWord>> file =
        FindFile(session, session.words()[i]);
    if (!file.ok()) return file.status();
    files[i] = *std::move(file);
  }
  if (files[0] || files[1]) return DiffFiles(session, files[0], files[1]);
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  std::optional<Step> steps[2];
  std::string key;
  const std::vector<std::string> words = TwoEnds(session.words());
  for (int i = 0; i < 2; ++i) {
    // One REV: with the save before it.
    const std::size_t word =
        words.size() > 1 ? static_cast<std::size_t>(i) : std::size_t{0};
    absl::StatusOr<Address> address = ParseAddress(words[word]);
    if (!address.ok()) return address.status();
    if (words.size() == 1 && i == 0) ++address->step.back;
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
    const Interruptible interruptible;
    absl::StatusOr<Table> made =
        DiffTable(*report, *steps[0], *steps[1],
                  session.arguments().Has("values"), *options);
    if (!made.ok()) return made.status();
    Table table = *std::move(made);
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
    if (HasNonFinite(*report)) {
      session.out().Write("norms and differences are of the finite elements\n");
    }
  }
  return report->changes.empty() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
