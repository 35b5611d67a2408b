// SPDX-License-Identifier: Apache-2.0

// Blame() of some leaves of a step at a time.

#ifndef CKPTREE_CORE_ENGINE_BLAME_PIECES_H_
#define CKPTREE_CORE_ENGINE_BLAME_PIECES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/history.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree::internal {

// The branch of each step that `store` lists, by its version: 3 of a branch and
// 3 of another are two steps.
using BranchByVersion = std::map<std::uint64_t, std::string>;
absl::StatusOr<BranchByVersion> ListedVersions(const Store& store);

// Of those of `leaves` that have a record, in their order. `listed`: as of
// ListedVersions().
absl::StatusOr<std::vector<BlameEntry>> BlameOf(const Step& step,
                                                std::vector<LeafInfo> leaves,
                                                const BranchByVersion& listed);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_BLAME_PIECES_H_
