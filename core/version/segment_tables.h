// SPDX-License-Identifier: Apache-2.0

// Tables of segments that damage took, made anew from the leaf records.

#ifndef CKPTREE_CORE_VERSION_SEGMENT_TABLES_H_
#define CKPTREE_CORE_VERSION_SEGMENT_TABLES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/database.h"

namespace ckptree::internal {

// `unproven`: keys of `chunks` whose records may be damaged
// (kv::OpenReport::unproven). Of those that are tables of segments and do not
// decode the files are written again with others in their place. A table lists
// what versions that are there refer to; of a block that none of them refers to
// it has the length alone. Returns how many were made. Runs in a TBB arena.
absl::StatusOr<int> MendSegmentTables(kv::Database* database,
                                      const std::vector<std::string>& unproven);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_SEGMENT_TABLES_H_
