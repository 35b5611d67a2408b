// SPDX-License-Identifier: Apache-2.0

// The compaction that RocksDB 7.8 loses keys in.

#ifndef CKPTREE_KV_TESTING_FORCED_COMPACTION_H_
#define CKPTREE_KV_TESTING_FORCED_COMPACTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Opens the closed database, takes a snapshot, rewrites all of `space` beside
// it and returns how many keys are left.
absl::StatusOr<int> CompactBesideSnapshot(const std::string& db_directory,
                                          schema::Space space);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_FORCED_COMPACTION_H_
