// SPDX-License-Identifier: Apache-2.0

// What stands in the files of segments beside the blocks that a full check
// reads.

#ifndef CKPTREE_CORE_VERIFY_SEGMENT_ENDS_H_
#define CKPTREE_CORE_VERIFY_SEGMENT_ENDS_H_

#include <functional>

#include "absl/status/status.h"
#include "core/verify/verify_walk.h"
#include "kv/database.h"

namespace ckptree::internal {

// Header and table of each segment, without its blocks, and all of both copies
// of `leaves`, which are small. Of files of `chunks` the rest is for the deep
// check, which reads them once more; so are segments that are elsewhere.
// `rows`: of `records`. Runs in a TBB arena; `cancelled` is asked by the thread
// that calls.
absl::Status CheckSegmentEnds(const kv::Database& database, kv::Iterator* rows,
                              const std::function<bool()>& cancelled,
                              Damage* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_SEGMENT_ENDS_H_
