// SPDX-License-Identifier: Apache-2.0

// Which steps a report looks at where there are more than it can show.

#ifndef CKPTREE_TOOLS_REPORT_CHOOSE_STEPS_H_
#define CKPTREE_TOOLS_REPORT_CHOOSE_STEPS_H_

#include <cstddef>
#include <vector>

#include "ckptree/step.h"

namespace ckptree::tools {

// At most `most` of `steps`, by their places, ascending: the first and the
// last; those that have a tag, a pin, NaN or Inf, of these at most half of
// `most`; the others evenly.
std::vector<std::size_t> ChooseSteps(const std::vector<StepInfo>& steps,
                                     std::size_t most);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_CHOOSE_STEPS_H_
