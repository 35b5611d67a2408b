// SPDX-License-Identifier: Apache-2.0

// A rank's part of a step: built beside the database, and handed over.

#ifndef CKPTREE_CORE_RANKS_PART_BUILD_H_
#define CKPTREE_CORE_RANKS_PART_BUILD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/engine/engine.h"
#include "core/ranks/rank_remote.h"
#include "core/save/part_writer.h"
#include "core/save/staged_content.h"
#include "core/version/catalog.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// Which process builds.
struct Builder {
  std::uint16_t rank = 0;
  // Another process that is started as the same rank has another one.
  std::uint64_t nonce = 0;
  absl::Time planned;  // When it met the plan.
};

// Where parts are until they are committed.
struct PartPlace {
  std::string staging;  // The folder with a folder for each attempt.
  // Null: the coordinator sees the same folder. Else what is in it goes there,
  // and from there into a folder of the coordinator's.
  RankRemote* remote = nullptr;
};

// A number that no other process has.
std::uint64_t NewNonce();
// The name of this machine, as far as a record has room.
std::string HostName();

// The folders of an attempt, and of a part of it, below `staging`.
std::string AttemptFolder(std::string_view staging,
                          const schema::RankPlan& plan);
std::string PartFolder(std::string_view staging, const schema::RankPlan& plan,
                       const Builder& builder);
// Whether the coordinator has taken the attempt's folder away: it has given the
// attempt up, or ended it. Of a group without a shared folder nobody can tell.
bool IsGivenUp(const PartPlace& place, const schema::RankPlan& plan);

// The branch that it is for.
inline BranchId BranchOf(const schema::RankPlan& plan) {
  return {plan.branch, plan.branch_created_ns};
}

// kFailedPrecondition where the plan is of another store, or from before the
// store was opened anew.
absl::Status CheckPlan(const Engine& engine, const schema::RankPlan& plan);

// Until this process sees the commit of that ordinal: a shared folder may show
// it late. A store that is read by its address shows at the next look what was
// there before; ordinals are others there. An error where it does not come.
absl::Status AwaitCommit(Engine* engine, std::uint64_t ordinal);

// Compares `content` with this rank's part of the base, which the engine knows
// from its last save or reads, and writes what is new. Where the base cannot be
// read all of it is written. Runs in the engine's arena.
absl::StatusOr<PartResult> BuildPart(
    Engine* engine, const PartPlace& place, const schema::RankPlan& plan,
    const Builder& builder, StagedContent* content, SaveCounters* counters,
    const std::function<absl::Status()>& check);

// An encoded PartToken. What it names is whole by then: segments are durable,
// and what is not in them goes durable with the commit. An error of `check`
// ends it.
absl::StatusOr<std::string> HandOver(
    const Engine& engine, const PartPlace& place, const schema::RankPlan& plan,
    const Builder& builder, PartResult part,
    const std::function<absl::Status()>& check);

// The coordinator: the part that `token` hands over. kFailedPrecondition where
// it is of another attempt; kDataLoss where its bytes are not those that were
// handed over. An error of `check` ends it.
absl::StatusOr<PartResult> TakeOver(Engine* engine, const PartPlace& place,
                                    const schema::RankPlan& plan,
                                    const schema::PartToken& token,
                                    const std::function<absl::Status()>& check);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_PART_BUILD_H_
