// SPDX-License-Identifier: Apache-2.0

// Counts the leaves of a step over its parts.

#ifndef CKPTREE_CORE_VERIFY_LEAF_COUNT_H_
#define CKPTREE_CORE_VERIFY_LEAF_COUNT_H_

#include <cstdint>
#include <map>
#include <memory>

#include "core/version/base_part.h"
#include "core/version/leaf_share.h"

namespace ckptree::internal {

using LoadedParts = std::map<std::uint16_t, std::shared_ptr<const BasePart>>;

// Each leaf once, however many parts have boxes of it. One that is lost (null)
// counts as none of the rest.
LeafTotals CountLeaves(const LoadedParts& parts, std::uint64_t version);

// A leaf once for each part that has it in its tree.
LeafTotals CountLeavesByPart(const LoadedParts& parts, std::uint64_t version);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_LEAF_COUNT_H_
