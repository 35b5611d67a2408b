// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_CORE_RANKS_GROUP_H_
#define CKPTREE_CORE_RANKS_GROUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ckptree/ranks.h"

namespace ckptree::internal {

// RankGroup::Open() over a file system of the caller's (see kv::Options): for
// tests.
struct RankGroupPeer {
  static absl::StatusOr<RankGroup> Open(const std::string& directory,
                                        const RankOptions& options,
                                        std::shared_ptr<void> file_system);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_GROUP_H_
