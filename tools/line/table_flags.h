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
absl::StatusOr<TableOptions> ParseTableOptions(const Arguments& arguments);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_TABLE_FLAGS_H_
