// SPDX-License-Identifier: Apache-2.0

// What is shown of a value that is no array.

#ifndef CKPTREE_TOOLS_OUTPUT_SCALAR_CELL_H_
#define CKPTREE_TOOLS_OUTPUT_SCALAR_CELL_H_

#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// True for kinds whose value ScalarCell() reads.
bool HasScalar(const LeafInfo& leaf);

// The value of a bool, number, string or JSON, of at most 64 KiB; of an int
// that no Json holds its digits, as a string. Else an
// empty cell, for which nothing is read. The text is one line, of at most 40
// characters. Errors are those of Step::Value().
absl::StatusOr<Cell> ScalarCell(const Step& step, const LeafInfo& leaf,
                                const LeafDetail& detail);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_SCALAR_CELL_H_
