// SPDX-License-Identifier: Apache-2.0

// Blame() of some leaves of a step at a time.

#ifndef CKPTREE_CORE_ENGINE_BLAME_PIECES_H_
#define CKPTREE_CORE_ENGINE_BLAME_PIECES_H_

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/history.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree::internal {

// The versions of the steps that `store` lists.
absl::StatusOr<std::set<std::uint64_t>> ListedVersions(const Store& store);

// Of those of `leaves` that have a record, in their order. `listed`: as of
// ListedVersions().
absl::StatusOr<std::vector<BlameEntry>> BlameOf(
    const Step& step, std::vector<LeafInfo> leaves,
    const std::set<std::uint64_t>& listed);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_BLAME_PIECES_H_
