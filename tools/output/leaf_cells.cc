// SPDX-License-Identifier: Apache-2.0

#include "tools/output/leaf_cells.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::tools {
namespace {

// Longer ones are shown as the bytes they are: to make digits of them takes the
// square of their size.
constexpr std::int64_t kMostIntBytes = 4096;

// Of finite numbers whose squares no double holds.
bool SquaresAreLost(const Statistics& statistics) {
  return std::isinf(statistics.sum_of_squares) ||
         (statistics.sum_of_squares == 0 &&
          (statistics.min < 0 || statistics.max > 0));
}

// People see how far the number can be true.
void MarkNorm(const Statistics& statistics, Cell* cell) {
  if (!SquaresAreLost(statistics)) return;
  cell->text = statistics.sum_of_squares == 0 ? "<1e-150" : ">1e154";
  cell->tone = Tone::kWarning;
}

void MarkDeviation(const Statistics& statistics, Cell* cell) {
  const double deviation = statistics.std_dev();
  // By statistics.h: there it has few right digits.
  if (deviation == 0 || deviation >= 1e-6 * std::abs(statistics.mean())) return;
  cell->text.insert(0, "~");
  cell->tone = Tone::kWarning;
}

}  // namespace

std::uint64_t NumberCount(const LeafInfo& leaf) {
  const auto elements =
      static_cast<std::uint64_t>(ElementCount(leaf.shape).value_or(0));
  return IsComplex(leaf.dtype) ? 2 * elements : elements;
}

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? "" : ",", shape[i]);
  }
  return text + "]";
}

bool IsLargeInt(const LeafInfo& leaf) {
  return leaf.tag == "int" && leaf.dtype == DType::kUint8 &&
         leaf.shape.size() == 1 && leaf.shape[0] <= kMostIntBytes;
}

bool HoldsArray(const LeafInfo& leaf) {
  return leaf.dtype != DType::kNone && !IsLargeInt(leaf);
}

EntryKind KindOf(const LeafInfo& leaf) {
  return IsLargeInt(leaf) ? EntryKind::kInt : leaf.kind;
}

Cell TypeCell(const LeafInfo& leaf) {
  if (IsLargeInt(leaf)) return TextCell("int");
  if (leaf.dtype == DType::kNone) return TextCell(Name(leaf.kind));
  return TextCell(std::string(Name(leaf.dtype)) + ShapeText(leaf.shape));
}

std::vector<Cell> StatisticsCells::Take(
    const std::vector<std::string_view>& names) const {
  std::vector<Cell> taken;
  taken.reserve(names.size());
  for (const std::string_view name : names) taken.push_back(Of(name));
  return taken;
}

Json StatisticOf(const Statistics& statistics, std::string_view name) {
  if (name == "nan") return statistics.nan;
  if (name == "inf") return statistics.inf;
  if (name == "zeros") return statistics.zero;
  if (statistics.finite() == 0) return Json();
  if (name == "l2") return statistics.l2();
  if (name == "mean") return statistics.mean();
  if (name == "std") {
    const double deviation = statistics.std_dev();
    return std::isnan(deviation) ? Json() : Json(deviation);
  }
  if (name == "min") return statistics.min;
  return name == "max" ? Json(statistics.max) : Json();
}

Cell StatisticsCells::Of(std::string_view name) const {
  if (!statistics_) return NoCell();
  const Json value = StatisticOf(*statistics_, name);
  if (value.is_null()) {
    // People see that it is not known, which is more than that it is absent.
    const bool unknown = name == "std" && statistics_->finite() > 0;
    return unknown ? Cell{Json(), "~?", Tone::kWarning} : NoCell();
  }
  if (value.is_number_float()) {
    Cell cell = NumberCell(value.get<double>());
    if (name == "l2") MarkNorm(*statistics_, &cell);
    if (name == "std") MarkDeviation(*statistics_, &cell);
    return cell;
  }
  Cell cell = CountCell(value.get<std::uint64_t>());
  if (name != "zeros" && value > 0) cell.tone = Tone::kBad;
  return cell;
}

}  // namespace ckptree::tools
