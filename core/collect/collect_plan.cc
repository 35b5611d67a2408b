// SPDX-License-Identifier: Apache-2.0

#include "core/collect/collect_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/base_loader.h"
#include "core/version/dead_blocks.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

using schema::BlockRun;
using schema::DeadPart;

template <typename Field>
std::uint64_t Total(const std::vector<DeadPart>& parts, Field field) {
  std::uint64_t total = 0;
  for (const DeadPart& part : parts) {
    for (const BlockRun& run : part.runs) total += run.*field;
  }
  return total;
}

// The runs of versions above `bound`, and the others.
std::pair<std::vector<BlockRun>, std::vector<BlockRun>> Split(
    const std::vector<BlockRun>& runs, std::uint64_t bound) {
  std::pair<std::vector<BlockRun>, std::vector<BlockRun>> split;
  for (const BlockRun& run : runs) {
    (run.version > bound ? split.first : split.second).push_back(run);
  }
  return split;
}

}  // namespace

std::uint64_t CollectPlan::blocks() const {
  return Total(freed, &BlockRun::count);
}

std::uint64_t CollectPlan::bytes() const {
  return Total(freed, &BlockRun::bytes);
}

absl::StatusOr<CollectPlan> PlanCollect(const ChainStep& step,
                                        const DeadListFn& dead_list,
                                        const BlocksFn& blocks) {
  CollectPlan plan;
  plan.step = step;
  if (step.successor == 0) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<DeadPart> own,
                             blocks(step.version));
    for (const DeadPart& part : own) {
      std::vector<BlockRun> born = Split(part.runs, step.prev).first;
      if (!born.empty()) plan.freed.push_back({part.part, std::move(born)});
    }
    return plan;
  }
  CKPTREE_ASSIGN_OR_RETURN(const schema::DeadList successor,
                           dead_list(step.successor));
  CKPTREE_ASSIGN_OR_RETURN(const schema::DeadList own, dead_list(step.version));
  if (successor.prev != step.version || own.prev != step.prev) {
    return absl::DataLossError(
        absl::StrFormat("the dead lists of versions %d and %d do not follow "
                        "each other",
                        step.version, step.successor));
  }
  std::map<std::uint16_t, std::vector<BlockRun>> rest;
  for (const DeadPart& part : own.parts) rest[part.part] = part.runs;
  for (const DeadPart& part : successor.parts) {
    auto [born, older] = Split(part.runs, step.prev);
    if (!born.empty()) plan.freed.push_back({part.part, std::move(born)});
    if (older.empty()) continue;
    std::vector<BlockRun>& all = rest[part.part];
    all = schema::MergeRuns(std::move(older), all);
  }
  plan.successor_list.branch = successor.branch;
  plan.successor_list.prev = step.prev;
  for (auto& [part, runs] : rest) {
    plan.successor_list.parts.push_back({part, std::move(runs)});
  }
  return plan;
}

std::uint64_t FarBytesOf(const kv::Database& database,
                         const CollectPlan& plan) {
  // All of a store that is read by its address is elsewhere.
  if (database.reads_far() || !database.any_far()) return 0;
  std::uint64_t bytes = 0;
  for (const DeadPart& part : plan.freed) {
    for (const BlockRun& run : part.runs) {
      if (run.place == schema::Space::kChunks &&
          database.IsFar(run.place, schema::BlockKey(run.version, part.part,
                                                     run.first_n))) {
        bytes += run.bytes;
      }
    }
  }
  return bytes;
}

absl::StatusOr<schema::DeadList> ReadDeadList(const kv::Database& database,
                                              std::uint64_t version) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> bytes,
      database.Get(schema::Space::kRecords, schema::DeadKey(version)));
  if (!bytes.has_value()) {
    return absl::DataLossError(
        absl::StrFormat("the dead list of version %d is missing", version));
  }
  return schema::DecodeDeadList(*bytes);
}

absl::StatusOr<std::vector<DeadPart>> ReadBlocks(const kv::Database& database,
                                                 std::uint64_t version) {
  CKPTREE_ASSIGN_OR_RETURN(const schema::StepRecord record,
                           ReadVersion(database, version));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::PartRecord> parts,
                           PartsOf(database, record));
  std::vector<DeadPart> blocks;
  for (const schema::PartRecord& part : parts) {
    CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const BasePart> loaded,
                             LoadPart(database, part));
    std::vector<BlockRun> runs = schema::RunsOf(BlocksOfPart(*loaded));
    if (!runs.empty()) blocks.push_back({part.part, std::move(runs)});
  }
  return blocks;
}

}  // namespace ckptree::internal
