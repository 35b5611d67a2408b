// SPDX-License-Identifier: Apache-2.0

// Steps that are to be removed, and what of them stands in the way.

#ifndef CKPTREE_TOOLS_VERBS_REMOVABLE_H_
#define CKPTREE_TOOLS_VERBS_REMOVABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/selector.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// Nothing is removed where one of them is pinned, or tagged and `arguments`
// have no --tagged.
absl::Status CheckMayGo(const Arguments& arguments,
                        const std::vector<StepInfo>& steps);

// " and the tags @a, @b"; empty where none of the steps has one.
std::string TagsText(const std::vector<StepInfo>& steps);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_REMOVABLE_H_
