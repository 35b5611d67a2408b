// SPDX-License-Identifier: Apache-2.0

// What steps cost, worked out on an overlay: the very rules of collection, run
// on copies.

#ifndef CKPTREE_CORE_ENGINE_USAGE_H_
#define CKPTREE_CORE_ENGINE_USAGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/usage.h"
#include "core/engine/engine.h"

namespace ckptree::internal {

absl::StatusOr<UsageReport> Usage(Engine* engine);

// First what is pending goes, then the steps; the result is what the steps
// free.
absl::StatusOr<FreedBytes> WouldFree(Engine* engine,
                                     const std::vector<StepSelector>& steps);
absl::StatusOr<FreedBytes> WouldFreeBranch(Engine* engine,
                                           std::string_view branch);

// The subtrees of a step down to `depth` keys, and the whole (depth 0).
absl::StatusOr<std::vector<SubtreeUsage>> Subtrees(Engine* engine,
                                                   const StepSelector& step,
                                                   int depth);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_USAGE_H_
