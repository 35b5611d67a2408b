// SPDX-License-Identifier: Apache-2.0

// The commit that collects a version.

#ifndef CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_
#define CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/collect/collect_plan.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "schema/step_record.h"

namespace ckptree::internal {

struct CollectCommit {
  kv::CommitRequest request;
  // Segments whose row goes: their keys, header to table.
  std::vector<std::pair<schema::Space, kv::Database::Range>> dead_segments;
  std::uint64_t half_dead_bytes = 0;  // Dead in segments that live on.
};

// Small blocks are deleted, others marked in their segment's row, which goes
// with its last block. The version's rows go; its successor takes its place;
// the tip of its branch moves. Trees stay: see DeadTrees. kDataLoss where the
// rows do not fit the plan.
absl::StatusOr<CollectCommit> BuildCollectCommit(
    const kv::Database& database, const CollectPlan& plan,
    const std::vector<schema::PartRecord>& parts);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_
