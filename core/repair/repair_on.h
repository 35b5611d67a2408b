// SPDX-License-Identifier: Apache-2.0

// Repair on a file system of the caller's.

#ifndef CKPTREE_CORE_REPAIR_REPAIR_ON_H_
#define CKPTREE_CORE_REPAIR_REPAIR_ON_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ckptree/repair.h"

namespace ckptree::internal {

// As Repair; what it writes in the store, and what changes places, goes through
// `file_system` (see kv::Options; null: the real one).
absl::StatusOr<RepairReport> RepairOn(const std::string& directory,
                                      const RepairOptions& options,
                                      std::shared_ptr<void> file_system);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REPAIR_REPAIR_ON_H_
