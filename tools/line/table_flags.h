// SPDX-License-Identifier: Apache-2.0

// The flags that every table understands.

#ifndef CKPTREE_TOOLS_LINE_TABLE_FLAGS_H_
#define CKPTREE_TOOLS_LINE_TABLE_FLAGS_H_

#include <span>

#include "absl/status/statusor.h"
#include "tools/line/arguments.h"
#include "tools/output/table.h"

namespace ckptree::tools {

std::span<const FlagSpec> TableFlags();

// kInvalidArgument: what is not a condition, or not a number.
// kInvalidArgument where one of them is given to a command that lists only
// without `words`, and has these.
absl::Status CheckNoTable(const Arguments& arguments, std::string_view words);

absl::StatusOr<TableOptions> ParseTableOptions(const Arguments& arguments);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_TABLE_FLAGS_H_
