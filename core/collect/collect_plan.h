// SPDX-License-Identifier: Apache-2.0

// What collecting one version frees: rules 6 and 7 of collection.

#ifndef CKPTREE_CORE_COLLECT_COLLECT_PLAN_H_
#define CKPTREE_CORE_COLLECT_COLLECT_PLAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/collect/chain.h"
#include "kv/database.h"
#include "schema/dead_list.h"

namespace ckptree::internal {

struct CollectPlan {
  ChainStep step;
  std::vector<schema::DeadPart> freed;  // Ascending by part.
  schema::DeadList successor_list;      // Of step.successor, from then on.

  std::uint64_t blocks() const;
  std::uint64_t bytes() const;  // Wherever they are.
};

// Of the blocks that it frees, those that are elsewhere alone.
std::uint64_t FarBytesOf(const kv::Database& database, const CollectPlan& plan);

// Where dead lists come from: the database, or what an overlay made of it.
using DeadListFn =
    std::function<absl::StatusOr<schema::DeadList>(std::uint64_t version)>;
// All blocks of a version's own maps.
using BlocksFn = std::function<absl::StatusOr<std::vector<schema::DeadPart>>(
    std::uint64_t version)>;

// With a successor: of the blocks that the successor no longer refers to, those
// born after step.prev die; the others and the version's own dead list become
// the successor's.
// Without one: all its blocks born after step.prev die; no dead list knows
// them.
absl::StatusOr<CollectPlan> PlanCollect(const ChainStep& step,
                                        const DeadListFn& dead_list,
                                        const BlocksFn& blocks);

absl::StatusOr<schema::DeadList> ReadDeadList(const kv::Database& database,
                                              std::uint64_t version);
// Runs in a TBB arena.
absl::StatusOr<std::vector<schema::DeadPart>> ReadBlocks(
    const kv::Database& database, std::uint64_t version);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_COLLECT_PLAN_H_
