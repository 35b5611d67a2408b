// SPDX-License-Identifier: Apache-2.0

// Trees that no version has any more.

#ifndef CKPTREE_CORE_COLLECT_TREE_SWEEP_H_
#define CKPTREE_CORE_COLLECT_TREE_SWEEP_H_

#include <set>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/database.h"

namespace ckptree::internal {

// A commit that removes every tree but those of `living`, with the pages that
// are of no living tree. `living` may name pages too: they stay. With
// `all_pages` also pages that no tree names, which a failed save of a very
// large tree may have left. The batch is empty where there is nothing to do.
absl::StatusOr<kv::CommitRequest> DeadTrees(
    const kv::Database& database, const std::set<base::Digest>& living,
    bool all_pages);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_TREE_SWEEP_H_
