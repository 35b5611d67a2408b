// SPDX-License-Identifier: Apache-2.0

// Compactions that no caller of a database asks for.

#ifndef CKPTREE_KV_TESTING_FORCED_COMPACTION_H_
#define CKPTREE_KV_TESTING_FORCED_COMPACTION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// The one that RocksDB 7.8 loses keys in: opens the closed database, takes a
// snapshot, rewrites all of `space` beside it and returns how many keys are
// left.
absl::StatusOr<int> CompactBesideSnapshot(const std::string& db_directory,
                                          schema::Space space);

// Puts all tables of `space` of the closed database where those of a large
// store are mostly: below the level that a compaction writes anew as a whole.
absl::Status Settle(const std::string& db_directory, schema::Space space);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_FORCED_COMPACTION_H_
