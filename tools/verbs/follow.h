// SPDX-License-Identifier: Apache-2.0

// `ckptree log --follow`: each step as it is committed.

#ifndef CKPTREE_TOOLS_VERBS_FOLLOW_H_
#define CKPTREE_TOOLS_VERBS_FOLLOW_H_

#include "absl/status/statusor.h"
#include "tools/line/session.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// Prints until it is interrupted, its reader is gone, or --until is reached.
absl::StatusOr<int> Follow(Session& session, TableOptions options);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_FOLLOW_H_
