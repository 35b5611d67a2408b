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
  if (name == "std") return statistics.std_dev();
  if (name == "min") return statistics.min;
  return name == "max" ? Json(statistics.max) : Json();
}

Cell StatisticsCells::Of(std::string_view name) const {
  if (!statistics_) return NoCell();
  const Json value = StatisticOf(*statistics_, name);
  if (value.is_null()) return NoCell();
  if (value.is_number_float()) return NumberCell(value.get<double>());
  Cell cell = CountCell(value.get<std::uint64_t>());
  if (name != "zeros" && value > 0) cell.tone = Tone::kBad;
  return cell;
}

}  // namespace ckptree::tools
