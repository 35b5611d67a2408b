// SPDX-License-Identifier: Apache-2.0

// Columns of records: one value for each row, or one for all of them.
//
// Hot path: per chunk reference.

#ifndef CKPTREE_SCHEMA_COLUMN_H_
#define CKPTREE_SCHEMA_COLUMN_H_

namespace ckptree::schema {

// True where `column` says something of each of `rows` rows: nothing (all have
// the default), one value for all, or one each.
template <typename Column>
bool ColumnFits(const Column& column, int rows) {
  return column.size() <= 1 || column.size() == rows;
}

// The value of `row`. REQUIRES: ColumnFits.
template <typename Column, typename Value>
Value ColumnAt(const Column& column, int row, Value fallback) {
  if (column.empty()) return fallback;
  return static_cast<Value>(column.size() == 1 ? column.Get(0)
                                               : column.Get(row));
}

// Fills the empty `column` with the fewest values that say field(row) for each
// element of `rows`.
template <typename Rows, typename Field, typename Value, typename Column>
void FillColumn(const Rows& rows, Field field, Value fallback, Column* column) {
  if (rows.empty()) return;
  const Value first = static_cast<Value>(field(rows.front()));
  bool same = true;
  for (const auto& row : rows) {
    if (static_cast<Value>(field(row)) != first) {
      same = false;
      break;
    }
  }
  if (same) {
    if (first != fallback) column->Add(first);
    return;
  }
  column->Reserve(static_cast<int>(rows.size()));
  for (const auto& row : rows) column->Add(static_cast<Value>(field(row)));
}

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_COLUMN_H_
