// SPDX-License-Identifier: Apache-2.0

// The table of steps that `log` prints and follows.

#ifndef CKPTREE_TOOLS_VERBS_LOG_TABLE_H_
#define CKPTREE_TOOLS_VERBS_LOG_TABLE_H_

#include <span>
#include <string>
#include <vector>

#include "ckptree/step.h"
#include "ckptree/store.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// Names of all metrics, in the order in which they were first used.
std::vector<std::string> MetricNames(const std::vector<StepInfo>& steps);

// A row for each of `steps`, in their order; a column for each of `metrics`.
// `ages`: people see how long ago a step was saved, not when. What `options` do
// not look at is not filled in, but with `every`. The rows are made late: the
// table holds on to `steps` and `metrics`.
Table LogTable(std::span<const StepInfo> steps,
               const std::vector<std::string>& metrics, bool ages,
               const TableOptions& options, bool every = false);

// Puts a drawing of the branches before the rows of `table`, which are those of
// `steps`, newest save first. With `joints` rows without a step show where a
// branch begins.
void AddGraph(const std::vector<StepInfo>& steps,
              const std::vector<BranchInfo>& branches, bool joints,
              Table* table);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_LOG_TABLE_H_
