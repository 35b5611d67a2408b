// SPDX-License-Identifier: Apache-2.0

// A table as text, for people or for programs.

#ifndef CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

// `table` as text that ends a line. kInvalidArgument: a column that is not
// there, with the nearest.
absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
