// SPDX-License-Identifier: Apache-2.0

// `ckptree stat`: the statistics of leaves of a step.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

struct Total {
  std::uint64_t arrays = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

// What any of `keys` names, each once.
absl::StatusOr<std::vector<LeafInfo>> ArraysOf(
    const Step& step, const std::vector<std::string>& keys) {
  std::vector<LeafInfo> arrays;
  std::set<std::string> seen;
  for (const std::string& key : keys) {
    absl::StatusOr<std::vector<LeafInfo>> found = FindSubtree(step, key);
    if (!found.ok()) return found.status();
    std::erase_if(*found, [](const LeafInfo& leaf) {
      return !leaf.is_leaf() || leaf.dtype == DType::kNone;
    });
    if (keys.size() == 1) {
      arrays = *std::move(found);
      break;
    }
    for (LeafInfo& leaf : *found) {
      if (seen.insert(leaf.name).second) arrays.push_back(std::move(leaf));
    }
  }
  if (arrays.empty()) {
    return WithHint(absl::NotFoundError("there are no arrays among these"),
                    "`ckptree ls` lists the keys");
  }
  return arrays;
}

}  // namespace

absl::StatusOr<int> RunStat(Session& session) {
  if (const auto& words = session.words(); words.size() < 2) {
    // The file of --rev, of -C, or the word itself.
    const std::string rev = session.arguments().Get("rev", "");
    const bool key = !words.empty() && !rev.empty();
    const auto file = FindFile(session,
                               !rev.empty() ? (key ? rev + ":" + words[0] : rev)
                               : words.empty() ? ""
                                               : words[0],
                               /*is_rev=*/words.empty() || !rev.empty());
    if (!file.ok()) return file.status();
    if (*file) return StatFile(session, **file);
  }
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Address> address =
      ParseAddress(session.arguments().Get("rev", ""));
  if (!address.ok()) return address.status();
  if (!address->key.empty()) {
    return WithHint(absl::InvalidArgumentError("--rev is a step without a key"),
                    "`ckptree stat --rev 1200 KEY...`");
  }
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  std::vector<std::string> keys = session.words();
  if (keys.empty()) keys.emplace_back();
  const absl::StatusOr<std::vector<LeafInfo>> arrays = ArraysOf(*step, keys);
  if (!arrays.ok()) return arrays.status();
  const absl::StatusOr<std::vector<LeafDetail>> details =
      step->Details(*arrays);
  if (!details.ok()) return details.status();

  Table table;
  table.schema = "ckptree.stat/1";
  table.rows_name = "arrays";
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE", .json = false},
                   {.name = "count", .title = "ELEMENTS", .right = true},
                   {.name = "l2", .title = "L2", .right = true},
                   {.name = "mean", .title = "MEAN", .right = true},
                   {.name = "std", .title = "STD", .right = true},
                   {.name = "min", .title = "MIN", .right = true},
                   {.name = "max", .title = "MAX", .right = true},
                   {.name = "nan", .title = "NAN", .right = true},
                   {.name = "inf", .title = "INF", .right = true},
                   {.name = "zeros", .title = "ZEROS", .right = true},
                   {.name = "dtype"},
                   {.name = "shape"},
                   {.name = "bytes"}};
  std::map<std::string, Total> totals;
  Total all;
  for (std::size_t i = 0; i < arrays->size(); ++i) {
    const LeafInfo& leaf = (*arrays)[i];
    const LeafDetail& detail = (*details)[i];
    const auto elements =
        static_cast<std::uint64_t>(ElementCount(leaf.shape).value_or(0));
    for (Total* total : {&totals[std::string(Name(leaf.dtype))], &all}) {
      ++total->arrays;
      total->elements += elements;
      total->bytes += detail.bytes;
    }
  }
  const std::vector<bool> needed = options->NeedsOf(table.columns);
  table.late_rows = arrays->size();
  table.make_row = [&](std::size_t i, std::vector<Cell>* cells) {
    const LeafInfo& leaf = (*arrays)[i];
    const LeafDetail& detail = (*details)[i];
    RowMaker row(needed, cells);
    row.Add([&] { return TextCell(leaf.name); });
    row.Add([&] { return TypeCell(leaf); });
    row.Add([&] {
      return CountCell(
          static_cast<std::uint64_t>(ElementCount(leaf.shape).value_or(0)));
    });
    const StatisticsCells statistics(detail.statistics);
    for (const std::string_view name :
         {"l2", "mean", "std", "min", "max", "nan", "inf", "zeros"}) {
      row.Add([&] { return statistics.Of(name); });
    }
    row.Add([&] { return TextCell(Name(leaf.dtype)); });
    row.Add([&] { return Cell{Json(leaf.shape), ShapeText(leaf.shape)}; });
    row.Add([&] { return BytesCell(detail.bytes, options->exact_bytes); });
  };
  Json by_dtype = Json::object();
  std::string line =
      absl::StrFormat("%s: %s, %s", StepText(step->info().branch, step->step()),
                      CountText(all.arrays, "array", "arrays"),
                      CountText(all.elements, "element", "elements"));
  for (const auto& [dtype, total] : totals) {
    by_dtype[dtype] = {{"arrays", total.arrays},
                       {"elements", total.elements},
                       {"bytes", total.bytes}};
    if (totals.size() > 1) {
      absl::StrAppendFormat(&line, "; %s %d", dtype, total.elements);
    }
  }
  absl::StrAppendFormat(&line, "; %s\n",
                        SizeText(all.bytes, options->exact_bytes));
  table.extra = {{"branch", step->info().branch},
                 {"step", step->step()},
                 {"totals", std::move(by_dtype)}};
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  if (options->format == Format::kTable) session.out().Write(line);
  return kExitOk;
}

}  // namespace ckptree::tools
