// SPDX-License-Identifier: Apache-2.0

// What `ckptree sql` can ask of a store: tables whose rows are made as they are
// asked for.

#ifndef CKPTREE_TOOLS_VERBS_SQL_TABLES_H_
#define CKPTREE_TOOLS_VERBS_SQL_TABLES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/store.h"

namespace ckptree::tools {

// std::monostate: NULL.
using SqlValue =
    std::variant<std::monostate, std::int64_t, double, std::string>;

// What a query says of a row before it is made; nothing: any.
struct SqlWanted {
  std::optional<std::string> branch;
  std::optional<std::int64_t> step;
  std::optional<std::string> key;
};

// Rows one after the other. Confined to one thread.
class SqlRows {
 public:
  virtual ~SqlRows() = default;
  // The next row; false at the end.
  virtual absl::StatusOr<bool> Next() = 0;
  // Of the row that Next() made.
  virtual SqlValue Column(int column) const = 0;
};

struct SqlTable {
  std::string_view name;
  // "step INTEGER, ..."; their order is that of SqlRows::Column().
  std::string_view columns;
  // Those by which a row is known: no two have the same ones, and none is NULL.
  std::string_view row_key;
  // Places among the columns; -1: there is none.
  int branch = -1;
  int step = -1;
  int key = -1;
  absl::StatusOr<std::unique_ptr<SqlRows>> (*rows)(const Store& store,
                                                   const SqlWanted& wanted);
};

std::span<const SqlTable> SqlTables();

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_SQL_TABLES_H_
