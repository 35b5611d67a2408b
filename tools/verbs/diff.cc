// SPDX-License-Identifier: Apache-2.0

// `ckptree diff`: the leaves in which two steps differ.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
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

// What is not in the records of a change.
struct Computed {
  Cell values[2] = {NoCell(), NoCell()};  // Of what is no array: both sides.
  std::optional<ValueDifference> difference;
};

absl::StatusOr<Cell> ValueOf(const Step& step,
                             const std::optional<LeafInfo>& leaf,
                             const std::optional<LeafDetail>& detail) {
  if (!leaf || !detail) return NoCell();
  return ScalarCell(step, *leaf, *detail);
}

bool ComparesValues(const LeafChange& change) {
  return change.kind == LeafChange::Kind::kChanged &&
         change.before->dtype != DType::kNone;
}

// Made late: the table holds on to `report`.
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
  AddNonFiniteColumns(&table);
  if (HasNonFinite(report)) TitleNonFiniteColumns(&table);
  std::map<std::size_t, Computed> computed;  // By change; most have nothing.
  const auto has_scalar = [](const std::optional<LeafInfo>& leaf) {
    return leaf && HasScalar(*leaf);
  };
  for (std::size_t i = 0; i < report.changes.size(); ++i) {
    const LeafChange& change = report.changes[i];
    if (has_scalar(change.before) || has_scalar(change.after)) {
      Computed& own = computed[i];
      CKPTREE_ASSIGN_OR_RETURN(
          own.values[0], ValueOf(before, change.before, change.before_detail));
      CKPTREE_ASSIGN_OR_RETURN(
          own.values[1], ValueOf(after, change.after, change.after_detail));
    }
    if (values && ComparesValues(change)) {
      CKPTREE_ASSIGN_OR_RETURN(computed[i].difference,
                               CompareValues(before, *change.before, after,
                                             *change.after, Interrupted));
    }
  }
  table.late_rows = report.changes.size();
  table.make_row = [&report, computed = std::move(computed), values,
                    exact = options.exact_bytes,
                    needed = options.NeedsOf(table.columns)](
                       std::size_t i, std::vector<Cell>* cells) {
    const LeafChange& change = report.changes[i];
    const auto found = computed.find(i);
    static const Computed kNothing;
    const Computed& own = found == computed.end() ? kNothing : found->second;
    const bool typed = change.kind == LeafChange::Kind::kChanged;
    // People see the values, where there are any.
    const auto side = [&](const std::optional<LeafInfo>& leaf, int which) {
      Cell type = leaf ? TypeCell(*leaf) : NoCell();
      const std::string& value = own.values[which].text;
      if (value.empty()) return type;
      if (typed || type.text.empty()) {
        type.text = value;
      } else {
        type.text += " " + value;
      }
      return type;
    };
    const StatisticsCells a(
        change.before_detail ? change.before_detail->statistics : std::nullopt);
    const StatisticsCells b(
        change.after_detail ? change.after_detail->statistics : std::nullopt);
    RowMaker row(needed, cells);
    row.Add([&] { return TextCell(Name(change.kind)); });
    row.Add([&] { return TextCell(change.name); });
    row.Add([&] { return side(change.before, 0); });
    row.Add([&] { return side(change.after, 1); });
    row.Add([&] {
      const auto& detail =
          change.after_detail ? change.after_detail : change.before_detail;
      return BytesCell(detail->bytes, exact);
    });
    row.Add([&] { return a.Of("l2"); });
    row.Add([&] { return b.Of("l2"); });
    if (values) {
      const auto& difference = own.difference;
      row.Add([&] {
        return difference ? NumberCell(difference->max_abs) : NoCell();
      });
      row.Add([&] {
        return difference ? NumberCell(difference->relative()) : NoCell();
      });
      row.Add([&] {
        if (!difference) return NoCell();
        return Cell{Json(difference->changed),
                    absl::StrFormat("%d of %d", difference->changed,
                                    difference->elements)};
      });
    }
    row.Add([&] { return own.values[0]; });
    row.Add([&] { return own.values[1]; });
    for (const std::string_view name : {"nan", "inf"}) {
      row.Add([&] { return a.Of(name); });
      row.Add([&] { return b.Of(name); });
    }
  };
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
    if (!key.empty() && !address->key.empty() && key != address->key) {
      return WithHint(
          absl::InvalidArgumentError(
              absl::StrFormat("`%s` and `%s` are two keys: a difference is of "
                              "one, in two steps",
                              Escape(key), Escape(address->key))),
          "`ckptree get REV:KEY --out FILE.npy` writes an array, and `ckptree "
          "diff FILE FILE` compares two of them");
    }
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
