// SPDX-License-Identifier: Apache-2.0

// `ckptree hist`: the distribution of an array's values, steps side by side.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/array_reader.h"
#include "tools/output/bars.h"
#include "tools/output/bins.h"
#include "tools/output/element_text.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kMostSeries = 12;
constexpr std::int64_t kMostBins = 200;

// The array in one step.
struct Series {
  Step step;
  LeafInfo leaf;
  Selection selection;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::vector<std::uint64_t> counts = {};  // One for each bin.
};

absl::StatusOr<Series> OpenSeries(Session& session, const StepInfo& info,
                                  std::string_view key) {
  absl::StatusOr<Step> step = session.OpenStep(AtStep(info.step, info.branch));
  if (!step.ok()) return step.status();
  const absl::StatusOr<Target> target = FindTarget(*step, key);
  if (!target.ok()) return target.status();
  if (target->leaves.size() != 1) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` is not the name of one leaf", Escape(key))),
                    "`ckptree ls` lists the leaves");
  }
  absl::StatusOr<LeafInfo> leaf = step->Holder(target->leaves[0]);
  if (!leaf.ok()) return leaf.status();
  if (!HoldsArray(*leaf) || IsComplex(leaf->dtype)) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` is %s: a histogram is of an array of real numbers",
            Escape(key), TypeCell(*leaf).text)),
        "`ckptree get` shows the value");
  }
  absl::StatusOr<Selection> selection = Select(target->slice, leaf->shape);
  if (!selection.ok()) {
    return WithHint(selection.status(), "a slice is written as NumPy does");
  }
  return Series{*std::move(step), *std::move(leaf), *std::move(selection)};
}

template <typename Fn>
absl::Status ForEachValue(const Series& series, const Fn& fn) {
  const auto width = static_cast<std::size_t>(ElementBytes(series.leaf.dtype));
  return ArrayReader(series.step, series.leaf)
      .ReadPieces(series.selection, [&](std::span<const std::byte> piece) {
        for (std::size_t at = 0; at + width <= piece.size(); at += width) {
          fn(RealValue(series.leaf.dtype, piece.data() + at));
        }
        return Interrupted() ? absl::CancelledError("interrupted")
                             : absl::OkStatus();
      });
}

// The extent of what is selected: known of a whole array, else read.
absl::Status FindExtent(Series* series) {
  const bool whole = series->selection == SelectAll(series->leaf.shape);
  if (whole) {
    const absl::StatusOr<LeafDetail> detail =
        series->step.Detail(series->leaf.path);
    if (!detail.ok()) return detail.status();
    if (detail->statistics) {
      series->low = detail->statistics->min;
      series->high = detail->statistics->max;
      return absl::OkStatus();
    }
  }
  return ForEachValue(*series, [series](double value) {
    if (!std::isfinite(value)) return;
    series->low = std::min(series->low, value);
    series->high = std::max(series->high, value);
  });
}

absl::Status CountInBins(const Bins& bins, Series* series) {
  series->counts.assign(bins.count(), 0);
  return ForEachValue(*series, [&](double value) {
    if (std::isnan(value)) {
      ++series->nan;
    } else if (std::isinf(value)) {
      ++series->inf;
    } else {
      ++series->counts[bins.Of(value)];
    }
  });
}

Table HistTable(const std::vector<Series>& all, const Bins& bins,
                const Terminal& terminal) {
  Table table;
  table.schema = "ckptree.hist/1";
  table.rows_name = "bins";
  table.columns = {{.name = "from", .title = "FROM", .right = true},
                   {.name = "to", .title = "TO", .right = true}};
  std::uint64_t most = 1;
  int count_width = 4;
  for (const Series& series : all) {
    const std::string name =
        StepText(series.step.info().branch, series.step.step());
    table.columns.push_back(
        {.name = "count." + name, .title = name, .right = true});
    table.columns.push_back(
        {.name = "bar." + name, .title = " ", .json = false, .drawn = true});
    for (const std::uint64_t count : series.counts) {
      most = std::max(most, count);
    }
    count_width = std::max(count_width, DisplayWidth(name));
  }
  count_width = std::max(count_width,
                         static_cast<int>(absl::StrFormat("%d", most).size()));
  // What the bars of one step may take.
  const int room =
      (terminal.width - 24) / static_cast<int>(all.size()) - count_width - 4;
  const int width = std::clamp(room, 4, 40);
  for (std::size_t i = 0; i < bins.count(); ++i) {
    std::vector<Cell> row = {NumberCell(bins.Edge(i)),
                             NumberCell(bins.Edge(i + 1))};
    for (const Series& series : all) {
      row.push_back(CountCell(series.counts[i]));
      const double share =
          static_cast<double>(series.counts[i]) / static_cast<double>(most);
      row.push_back({Json(), Bar(share, width, terminal.utf8)});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

absl::StatusOr<int> RunHist(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const auto asked = session.arguments().Number("bins");
  if (!asked.ok()) return asked.status();
  if (*asked && (**asked < 1 || **asked > kMostBins)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "`--bins %d`: 1 to %d are possible", **asked, kMostBins));
  }
  std::vector<StepInfo> steps;
  const std::string& key = session.words()[0];
  std::vector<std::string> revs(session.words().begin() + 1,
                                session.words().end());
  if (revs.empty()) revs.emplace_back("latest");
  for (const std::string& rev : revs) {
    const absl::StatusOr<std::vector<StepInfo>> found = FindSteps(session, rev);
    if (!found.ok()) return found.status();
    for (const StepInfo& info : *found) {
      const bool is_there = std::any_of(steps.begin(), steps.end(),
                                        [&info](const StepInfo& other) {
                                          return other.version == info.version;
                                        });
      if (!is_there) steps.push_back(info);
    }
  }
  if (steps.empty()) {
    return WithHint(absl::NotFoundError("no steps there"),
                    "`ckptree log` lists the steps");
  }
  if (steps.size() > kMostSeries) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%d steps: at most %d stand side by side", steps.size(),
                        kMostSeries)),
                    "name some of them; `ckptree history` shows all of a leaf");
  }
  const Interruptible interruptible;
  std::vector<Series> all;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const StepInfo& info : steps) {
    absl::StatusOr<Series> series = OpenSeries(session, info, key);
    if (!series.ok()) return series.status();
    if (absl::Status status = FindExtent(&*series); !status.ok()) return status;
    low = std::min(low, series->low);
    high = std::max(high, series->high);
    all.push_back(*std::move(series));
  }
  if (low > high) {
    return WithHint(absl::NotFoundError(absl::StrFormat(
                        "`%s` has no finite value there", Escape(key))),
                    "`ckptree stat` counts NaN and Inf");
  }
  // The extent of doubles may be no double.
  if (!std::isfinite(high - low)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the values of `%s` are too far apart for bins", Escape(key)));
  }
  // One value alone is one bin.
  const Bins bins(
      low, high,
      high > low ? static_cast<std::size_t>(asked->value_or(20)) : 1);
  for (Series& series : all) {
    if (absl::Status status = CountInBins(bins, &series); !status.ok()) {
      return status;
    }
  }
  Table table = HistTable(all, bins, session.terminal());
  Json described = Json::array();
  std::string line;
  for (const Series& series : all) {
    const std::string name =
        StepText(series.step.info().branch, series.step.step());
    described.push_back({{"rev", name},
                         {"dtype", std::string(Name(series.leaf.dtype))},
                         {"shape", series.leaf.shape},
                         {"nan", series.nan},
                         {"inf", series.inf}});
    if (series.nan + series.inf > 0) {
      absl::StrAppendFormat(&line, "%s: not in a bin: %d NaN, %d Inf\n", name,
                            series.nan, series.inf);
    }
  }
  table.extra = {{"key", key}, {"steps", std::move(described)}};
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  if (options->format == Format::kTable) session.out().Write(line);
  return kExitOk;
}

}  // namespace ckptree::tools
