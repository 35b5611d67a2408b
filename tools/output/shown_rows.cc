// SPDX-License-Identifier: Apache-2.0

#include "tools/output/shown_rows.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tools/output/failure.h"

namespace ckptree::tools {

absl::StatusOr<ShownRows> ChooseRows(const Table& table,
                                     const TableOptions& options) {
  ShownRows shown(table);
  std::optional<Expression> where = options.where;
  std::vector<std::string> names;
  for (const Column& column : table.columns) names.push_back(column.name);
  constexpr std::string_view kHint =
      "`ckptree help where` shows what a condition is";
  if (where) {
    // A cell may show something else than its value is: a time as an age.
    std::map<std::string, std::string> shown_as;
    for (const Column& column : table.columns) {
      shown_as.try_emplace(TitleAsName(column), column.name);
    }
    std::vector<std::string> times;
    for (const Column& column : table.columns) {
      if (column.time) times.push_back(column.name);
    }
    if (absl::Status status = where->Bind(names, shown_as, times);
        !status.ok()) {
      return WithHint(status, kHint);
    }
  }
  const std::size_t rows = table.rows.size() + table.late_rows;
  const auto most =
      static_cast<std::size_t>(options.limit.value_or(std::int64_t{1} << 62));
  for (std::size_t row = 0; row < rows; ++row) {
    if (where) {
      const std::vector<Cell>& cells = shown.Of(row);
      const absl::StatusOr<bool> holds =
          where->Holds([&](std::string_view name) -> const Json& {
            const auto at = std::find(names.begin(), names.end(), name);
            return cells[static_cast<std::size_t>(at - names.begin())].value;
          });
      if (!holds.ok()) return WithHint(holds.status(), kHint);
      if (!*holds) continue;
    }
    // What is wrong with a condition is said of any row.
    if (shown.size() < most) shown.Add(row);
    if (shown.size() == most && !where) break;
  }
  if (options.reverse) shown.Reverse();
  return shown;
}

}  // namespace ckptree::tools
