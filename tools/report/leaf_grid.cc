// SPDX-License-Identifier: Apache-2.0

#include "tools/report/leaf_grid.h"

#include <algorithm>

#include "ckptree/path.h"
#include "tools/output/leaf_cells.h"

namespace ckptree::tools {
std::int64_t LeafGrid::TypeOf(const LeafInfo& leaf) {
  std::string text = TypeCell(leaf).text;
  const auto [it, fresh] =
      type_places_.emplace(text, static_cast<std::int64_t>(types_.size()));
  if (fresh) {
    std::int64_t count = 0;
    if (leaf.dtype != DType::kNone) {
      count = static_cast<std::int64_t>(ElementCount(leaf.shape).value_or(0));
    }
    types_.emplace_back(std::move(text), count);
  }
  return it->second;
}

LeafGrid::Cell LeafGrid::CellOf(const LeafInfo& info, const LeafDetail& detail,
                                Leaf* leaf) {
  Cell cell;
  cell.type = TypeOf(info);
  // Values of two types may be the same bytes.
  const auto next = static_cast<std::int64_t>(leaf->values.size()) + 1;
  cell.value =
      leaf->values
          .emplace(
              detail.digest + types_[static_cast<std::size_t>(cell.type)].first,
              next)
          .first->second;
  if (detail.statistics) {
    const Statistics& known = *detail.statistics;
    cell.nan = static_cast<std::int64_t>(known.nan);
    cell.inf = static_cast<std::int64_t>(known.inf);
    cell.zero = static_cast<std::int64_t>(known.zero);
    if (known.finite() > 0) {
      cell.l2 = known.l2();
      cell.mean = known.mean();
      cell.deviation = known.std_dev();
      cell.min = known.min;
      cell.max = known.max;
    }
  }
  leaf->bytes = static_cast<std::int64_t>(detail.bytes);
  leaf->stored = static_cast<std::int64_t>(detail.stored_bytes);
  leaf->since = detail.since_step;
  leaf->chunks = static_cast<std::int64_t>(detail.chunk_count);
  return cell;
}

absl::Status LeafGrid::Add(const Step& step, std::size_t place) {
  absl::StatusOr<std::vector<LeafInfo>> infos = step.Leaves();
  if (!infos.ok()) return infos.status();
  std::erase_if(*infos, [&](const LeafInfo& leaf) {
    return !leaf.is_leaf() ||
           (!keys_.empty() &&
            std::none_of(keys_.begin(), keys_.end(), [&](const auto& key) {
              return MatchesGlob(key, leaf.name);
            }));
  });
  const absl::StatusOr<std::vector<LeafDetail>> details = step.Details(*infos);
  if (!details.ok()) return details.status();

  places_.push_back(static_cast<std::int64_t>(place));
  newest_.clear();
  std::vector<Cell> column(leaves_.size());
  for (std::size_t i = 0; i < infos->size(); ++i) {
    const auto [it, fresh] =
        leaf_places_.emplace((*infos)[i].name, leaves_.size());
    if (fresh) leaves_.push_back({.name = (*infos)[i].name, .values = {}});
    newest_.push_back(it->second);
    if (column.size() < leaves_.size()) column.resize(leaves_.size());
    column[it->second] =
        CellOf((*infos)[i], (*details)[i], &leaves_[it->second]);
  }
  columns_.push_back(std::move(column));
  return absl::OkStatus();
}

Json LeafGrid::Take(NumberPack* pack) {
  // As the newest step has them, then those that it lacks.
  std::vector<std::size_t> order = newest_;
  std::vector<bool> there(leaves_.size());
  for (const std::size_t leaf : order) there[leaf] = true;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (!there[leaf]) order.push_back(leaf);
  }

  Json names = Json::array();
  for (const std::size_t leaf : order) names.push_back(leaves_[leaf].name);
  Json types = Json::array();
  for (const auto& [text, count] : types_) {
    types.push_back({{"text", text}, {"count", count}});
  }
  Json json = {{"at", pack->AddIntegers(places_)},
               {"names", std::move(names)},
               {"types", std::move(types)}};
  const auto of_leaf = [&](const char* name, std::int64_t Leaf::*field) {
    std::vector<std::int64_t> values;
    for (const std::size_t leaf : order) {
      values.push_back(leaves_[leaf].*field);
    }
    json[name] = pack->AddIntegers(values);
  };
  of_leaf("bytes", &Leaf::bytes);
  of_leaf("stored", &Leaf::stored);
  of_leaf("since", &Leaf::since);
  of_leaf("chunks", &Leaf::chunks);

  // Row by row: neighbours in time are alike.
  const auto cells = [&](const auto& take) {
    for (const std::size_t leaf : order) {
      for (const std::vector<Cell>& column : columns_) {
        // Columns from before the leaf was first seen are shorter.
        take(leaf < column.size() ? column[leaf] : Cell());
      }
    }
  };
  const auto integers = [&](const char* name, std::int64_t Cell::*field) {
    std::vector<std::int64_t> values;
    values.reserve(order.size() * columns_.size());
    cells([&](const Cell& cell) { values.push_back(cell.*field); });
    json[name] = pack->AddIntegers(values);
  };
  const auto floats = [&](const char* name, double Cell::*field) {
    std::vector<double> values;
    values.reserve(order.size() * columns_.size());
    cells([&](const Cell& cell) { values.push_back(cell.*field); });
    json[name] = pack->AddFloats(values, Digits::kDrawn);
  };
  integers("value", &Cell::value);
  integers("type", &Cell::type);
  integers("nan", &Cell::nan);
  integers("inf", &Cell::inf);
  integers("zero", &Cell::zero);
  floats("l2", &Cell::l2);
  floats("mean", &Cell::mean);
  floats("std", &Cell::deviation);
  floats("min", &Cell::min);
  floats("max", &Cell::max);
  return json;
}

}  // namespace ckptree::tools
