// SPDX-License-Identifier: Apache-2.0

// One step built by several processes: each rank writes its part into a shared
// staging folder, the coordinator, which has the store open, commits them all
// at once. No public API yet.

#ifndef CKPTREE_CORE_ENGINE_RANK_SAVE_H_
#define CKPTREE_CORE_ENGINE_RANK_SAVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/store.h"
#include "core/save/part_writer.h"
#include "core/save/rank_plan.h"
#include "core/save/step_content.h"
#include "kv/options.h"
#include "schema/part_handoff.h"

namespace ckptree::internal {

// A rank: compares `content` with part `part` of the base, which it reads from
// `store` (opened read only; another process may be writing), writes what is
// new into the staging folder, and last, durably, `part-<number>.handoff`.
// kFailedPrecondition where the store's tip is not the plan's base.
absl::Status WriteRankPart(const Store& store, const RankPlan& plan,
                           std::uint16_t part, StepContent content,
                           const kv::Options& kv_options);

// Reads the handoff of a part. kNotFound while there is none.
absl::StatusOr<schema::PartHandoff> ReadHandoff(const RankPlan& plan,
                                                std::uint16_t part,
                                                const kv::Options& kv_options);

// What the commit needs of a part that another process built.
absl::StatusOr<PartResult> ResultOf(const schema::PartHandoff& handoff,
                                    const RankPlan& plan,
                                    const kv::Options& kv_options);

// The coordinator: takes a turn among the saves of `store`, calls `gather` with
// the plan (from the store's write thread) until it returns the parts, adopts
// and commits. Returns when the step is committed or failed.
absl::Status CommitParts(
    const Store& store, std::int64_t step,
    std::function<
        absl::StatusOr<std::vector<schema::PartHandoff>>(const RankPlan&)>
        gather);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_RANK_SAVE_H_
