// SPDX-License-Identifier: Apache-2.0

// A table as text, for people or for programs.

#ifndef CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

// How rows were set, so that those that come later stand below them.
struct Layout {
  std::vector<std::string> columns = {};  // That were to be shown: their names.
  // For people.
  std::vector<std::size_t> shown = {};  // Of these, those that had room.
  std::vector<int> widths = {};         // Of `shown`.
};

// `table` as text that ends a line. kInvalidArgument: a column that is not
// there, with the nearest. With `layout` of rows that had the same columns: as
// rows of that table, without a header.
absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal,
                                   Layout* layout = nullptr);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
