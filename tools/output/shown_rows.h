// SPDX-License-Identifier: Apache-2.0

// Which rows of a table are shown, made as they are looked at.

#ifndef CKPTREE_TOOLS_OUTPUT_SHOWN_ROWS_H_
#define CKPTREE_TOOLS_OUTPUT_SHOWN_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// The rows of a table that are shown, in order. The table outlives it. Confined
// to one thread, but for Get().
class ShownRows {
 public:
  explicit ShownRows(const Table& table) : table_(table) {}

  std::size_t size() const { return rows_.size(); }
  void Add(std::size_t row) { rows_.push_back(row); }
  void Reverse() { std::reverse(rows_.begin(), rows_.end()); }

  // Until the next one is asked for.
  const std::vector<Cell>& operator[](std::size_t at) const {
    return Of(rows_[at]);
  }
  // Of any row of the table.
  const std::vector<Cell>& Of(std::size_t row) const {
    return Make(row, &made_);
  }
  // As operator[], for several threads at once: in the table, or made into
  // `made`, which each of them has for itself.
  const std::vector<Cell>& Get(std::size_t at, std::vector<Cell>* made) const {
    return Make(rows_[at], made);
  }

 private:
  const std::vector<Cell>& Make(std::size_t row,
                                std::vector<Cell>* made) const {
    if (row < table_.rows.size()) return table_.rows[row];
    made->clear();
    table_.make_row(row - table_.rows.size(), made);
    return *made;
  }

  const Table& table_;
  std::vector<std::size_t> rows_;
  mutable std::vector<Cell> made_;
};

// Those for which the condition of `options` holds, as many as they ask for.
// kInvalidArgument: it has a name that there is not, or asks what it may not.
absl::StatusOr<ShownRows> ChooseRows(const Table& table,
                                     const TableOptions& options);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_SHOWN_ROWS_H_
