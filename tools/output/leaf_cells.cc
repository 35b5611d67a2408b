// SPDX-License-Identifier: Apache-2.0

#include "tools/output/leaf_cells.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::tools {

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? "" : ",", shape[i]);
  }
  return text + "]";
}

Cell TypeCell(const LeafInfo& leaf) {
  if (leaf.dtype == DType::kNone) return TextCell(Name(leaf.kind));
  return TextCell(std::string(Name(leaf.dtype)) + ShapeText(leaf.shape));
}

std::vector<Cell> StatisticsCells::Take(
    const std::vector<std::string_view>& names) const {
  std::vector<Cell> taken;
  taken.reserve(names.size());
  for (const std::string_view name : names) taken.push_back(CellOf(name));
  return taken;
}

Cell StatisticsCells::CellOf(std::string_view name) const {
  if (!statistics_) return NoCell();
  const auto count = [](std::uint64_t n, bool bad) {
    Cell cell = CountCell(n);
    if (bad && n > 0) cell.tone = Tone::kBad;
    return cell;
  };
  if (name == "nan") return count(statistics_->nan, true);
  if (name == "inf") return count(statistics_->inf, true);
  if (name == "zeros") return count(statistics_->zero, false);
  if (statistics_->finite() == 0) return NoCell();
  if (name == "l2") return NumberCell(statistics_->l2());
  if (name == "mean") return NumberCell(statistics_->mean());
  if (name == "std") return NumberCell(statistics_->std_dev());
  if (name == "min") return NumberCell(statistics_->min);
  return name == "max" ? NumberCell(statistics_->max) : NoCell();
}

}  // namespace ckptree::tools
