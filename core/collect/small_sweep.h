// SPDX-License-Identifier: Apache-2.0

// Blocks of small saves whose commit is gone.

#ifndef CKPTREE_CORE_COLLECT_SMALL_SWEEP_H_
#define CKPTREE_CORE_COLLECT_SMALL_SWEEP_H_

#include <cstdint>
#include <set>

#include "absl/status/statusor.h"
#include "core/collect/chain.h"
#include "kv/database.h"

namespace ckptree::internal {

// Versions that are not in the chain, and whose blocks in `small` still have
// their header.
absl::StatusOr<std::set<std::uint64_t>> VersionsBeside(
    const kv::Database& database, const Chain& chain);

// A commit that removes the blocks in `small` of `unlisted`, versions with a
// header that are not in the chain, but for those that versions of the chain
// refer to. Runs in a TBB arena.
absl::StatusOr<kv::CommitRequest> UnlistedSmall(
    const kv::Database& database, const Chain& chain,
    const std::set<std::uint64_t>& unlisted);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_SMALL_SWEEP_H_
