// SPDX-License-Identifier: Apache-2.0

// Ties as what they are other names of.

#ifndef CKPTREE_CORE_ENGINE_TIED_LEAVES_H_
#define CKPTREE_CORE_ENGINE_TIED_LEAVES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"

namespace ckptree::internal {

// The leaf that has the value of `info`, under the name and path of `info`; of
// a tie it still says what that is tied to. kDataLoss where that is missing.
absl::StatusOr<LeafInfo> HolderOf(const Step& step, LeafInfo info);

// The same of all of them.
absl::Status FollowTies(const Step& step, std::vector<LeafInfo>* infos);

// Of leaves, and of ties that were followed, in the order given.
absl::StatusOr<std::vector<LeafDetail>> DetailsOf(
    const Step& step, const std::vector<LeafInfo>& infos);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_TIED_LEAVES_H_
