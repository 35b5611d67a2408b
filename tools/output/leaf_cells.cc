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

StatisticsCells::StatisticsCells(const std::optional<Statistics>& statistics) {
  if (!statistics.has_value()) return;
  if (statistics->finite() > 0) {
    cells_["l2"] = NumberCell(statistics->l2());
    cells_["mean"] = NumberCell(statistics->mean());
    cells_["std"] = NumberCell(statistics->std_dev());
    cells_["min"] = NumberCell(statistics->min);
    cells_["max"] = NumberCell(statistics->max);
  }
  const auto count = [](std::uint64_t n, bool bad) {
    Cell cell = CountCell(n);
    if (bad && n > 0) cell.tone = Tone::kBad;
    return cell;
  };
  cells_["nan"] = count(statistics->nan, true);
  cells_["inf"] = count(statistics->inf, true);
  cells_["zeros"] = count(statistics->zero, false);
}

std::vector<Cell> StatisticsCells::Take(
    const std::vector<std::string_view>& names) const {
  std::vector<Cell> taken;
  for (const std::string_view name : names) {
    const auto it = cells_.find(name);
    taken.push_back(it == cells_.end() ? NoCell() : it->second);
  }
  return taken;
}

}  // namespace ckptree::tools
