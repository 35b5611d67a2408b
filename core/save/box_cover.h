// SPDX-License-Identifier: Apache-2.0

// Whether boxes are all of their array.

#ifndef CKPTREE_CORE_SAVE_BOX_COVER_H_
#define CKPTREE_CORE_SAVE_BOX_COVER_H_

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/save/step_content.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {

// kInvalidArgument, naming a missing box, where the boxes of an array leave
// elements out: it could never be restored. To be asked where a step is
// committed as a whole. The parts of several processes have an array between
// them: their coordinator knows all boxes, and is to ask with those.
absl::Status CheckCovered(std::string_view path, const Shape& shape,
                          const std::vector<schema::Box>& boxes);
absl::Status CheckCovered(const StepContent& content);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_BOX_COVER_H_
