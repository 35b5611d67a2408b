// SPDX-License-Identifier: Apache-2.0

// Which arrays of a step are the bfloat16 copies of others.

#ifndef CKPTREE_CORE_SAVE_ROUNDED_PAIRS_H_
#define CKPTREE_CORE_SAVE_ROUNDED_PAIRS_H_

#include <cstddef>

#include "core/save/step_content.h"

namespace ckptree::internal {

// Pairs arrays of float32 with their rounded copies, by shape, boxes and a
// sample of the values (SourceLeaf::copy, ::is_copy), and cuts each copy as its
// master. Whether the copy is one is looked at chunk by chunk when they are
// written. Looks at arrays that are in the caller's memory, one element after
// the other, and are cut as `chunk_bytes` says, or alike already.
void PairRoundedCopies(std::size_t chunk_bytes, StepContent* content);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_ROUNDED_PAIRS_H_
