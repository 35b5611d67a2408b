// SPDX-License-Identifier: Apache-2.0

// The branches that go on from steps of a report.

#ifndef CKPTREE_TOOLS_REPORT_BRANCHES_H_
#define CKPTREE_TOOLS_REPORT_BRANCHES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/store.h"
#include "tools/output/table.h"
#include "tools/report/number_pack.h"

namespace ckptree::tools {

// Those that go on from one of `steps`, which are of one branch, or from one
// between them that is not there any more: an object for each, with `name`,
// `at` (the place in `steps` that it begins at, or behind), `from` (the number
// of the step), how many `steps` it has, its `newest`, and its `metrics` by the
// numbers of its steps. At most as many as a chart can show: the newest ones.
absl::StatusOr<Json> BranchesOf(const Store& store,
                                const std::vector<StepInfo>& steps,
                                NumberPack* pack);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_BRANCHES_H_
