// SPDX-License-Identifier: Apache-2.0

// The dead list of one part: blocks(base) - blocks(next).

#ifndef CKPTREE_CORE_VERSION_DEAD_BLOCKS_H_
#define CKPTREE_CORE_VERSION_DEAD_BLOCKS_H_

#include <vector>

#include "core/version/base_part.h"
#include "schema/dead_list.h"

namespace ckptree::internal {

// Every block that `part` refers to: its records and their chunks.
std::vector<schema::Block> BlocksOfPart(const BasePart& part);

// The blocks of `base` that `next` does not refer to; none without a base.
// Exact for the part alone, as a block never leaves its part.
std::vector<schema::BlockRun> DeadBlocks(const BasePart* base,
                                         const BasePart& next);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_DEAD_BLOCKS_H_
