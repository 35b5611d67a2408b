// SPDX-License-Identifier: Apache-2.0

// What `recover` and `repair` say about steps.

#ifndef CKPTREE_TOOLS_VERBS_RECOVERED_STEPS_H_
#define CKPTREE_TOOLS_VERBS_RECOVERED_STEPS_H_

#include <string>
#include <string_view>
#include <vector>

#include "ckptree/recover.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// A row for each step; all of it for programs, the essence for people.
Table RecoveredTable(std::string_view schema,
                     const std::vector<RecoveredStep>& steps, bool exact_bytes);

// What is lost, line by line, for people.
std::string LossText(const std::vector<RecoveredStep>& steps,
                     const std::vector<std::string>& losses);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_RECOVERED_STEPS_H_
