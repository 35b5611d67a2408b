// SPDX-License-Identifier: Apache-2.0

#include "core/engine/rank_save.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/save/save.h"
#include "core/save/staged_content.h"
#include "core/version/base_loader.h"
#include "kv/file_system.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

std::string HandoffPath(const RankPlan& plan, std::uint16_t part) {
  return absl::StrFormat("%s/part-%d.handoff", plan.staging, part);
}

}  // namespace

absl::Status WriteRankPart(const Store& store, const RankPlan& plan,
                           std::uint16_t part, StepContent content,
                           const kv::Options& kv_options) {
  if (part >= schema::kMaxParts) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "part %d: a step has at most %d parts", part, schema::kMaxParts));
  }
  Engine& engine = StoreEngine::Of(store);
  SaveCounters counters;
  PartTask part_task;
  part_task.kv_options = kv_options;
  part_task.staging = plan.staging;
  part_task.make_staging = [] { return absl::OkStatus(); };
  part_task.attempt = plan.attempt;
  part_task.uuid = plan.uuid;
  part_task.incarnation = plan.incarnation;
  part_task.version = plan.version;
  part_task.step = plan.step;
  part_task.part = part;
  part_task.statistics = engine.options().statistics;
  part_task.check = [] { return absl::OkStatus(); };
  part_task.counters = &counters;
  // The caller's memory is borrowed for the length of this call.
  StagedContent staged(std::move(content), engine.options().chunk_bytes,
                       &engine.pool(), [] {});
  CKPTREE_RETURN_IF_ERROR(staged.StageInline());
  absl::StatusOr<PartResult> result = absl::UnknownError("");
  engine.arena().execute([&] {
    result = [&]() -> absl::StatusOr<PartResult> {
      if (plan.full) return WritePart(part_task, &staged, nullptr);
      CKPTREE_ASSIGN_OR_RETURN(const BaseState base,
                               LoadBase(engine.database(), kMainBranch));
      if (base.version != plan.base) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "the store is at version %d, the save is based on %d", base.version,
            plan.base));
      }
      const auto it = base.parts.find(part);
      return WritePart(part_task, &staged,
                       it == base.parts.end() ? nullptr : it->second.get());
    }();
  });
  CKPTREE_RETURN_IF_ERROR(result.status());

  schema::PartHandoff handoff;
  schema::StepRecord& record = handoff.record;
  record.version = plan.version;
  record.base = plan.base;
  record.step = plan.step;
  record.parts.push_back(result->record);
  record.leaf_count = result->leaf_count;
  record.changed_leaves = result->changed_leaves;
  record.logical_bytes = result->logical_bytes;
  record.new_bytes = result->new_bytes;
  record.nan_count = result->nan_count;
  record.inf_count = result->inf_count;
  record.nonfinite_leaves = result->nonfinite_leaves;
  record.digest = result->digest;
  handoff.dead.prev = plan.base;
  if (!result->dead.empty()) handoff.dead.parts.push_back({part, result->dead});
  handoff.tree_root = result->tree.root;
  for (const auto& [digest, page] : result->tree.pages) {
    handoff.tree_pages.push_back(page);
  }
  for (const BuiltSegment& segment : result->segments) {
    handoff.segments.emplace_back(segment.row_key, segment.row_value);
  }
  handoff.small = result->small;
  // Whole or not there: written aside, synced, then renamed.
  const std::string path = HandoffPath(plan, part);
  CKPTREE_RETURN_IF_ERROR(kv::WriteFile(kv_options, path + ".tmp",
                                        schema::EncodePartHandoff(handoff)));
  CKPTREE_RETURN_IF_ERROR(kv::RenameFile(kv_options, path + ".tmp", path));
  return kv::SyncDirectory(kv_options, plan.staging);
}

absl::StatusOr<schema::PartHandoff> ReadHandoff(const RankPlan& plan,
                                                std::uint16_t part,
                                                const kv::Options& kv_options) {
  const std::string path = HandoffPath(plan, part);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t size,
                           kv::FileSize(kv_options, path));
  CKPTREE_ASSIGN_OR_RETURN(const std::string bytes,
                           kv::ReadFile(kv_options, path, size));
  CKPTREE_ASSIGN_OR_RETURN(schema::PartHandoff handoff,
                           schema::DecodePartHandoff(bytes));
  const schema::StepRecord& record = handoff.record;
  if (record.version != plan.version || record.base != plan.base ||
      record.step != plan.step || record.parts.front().part != part) {
    return absl::DataLossError(
        absl::StrFormat("the handoff of part %d is of another save", part));
  }
  return handoff;
}

absl::StatusOr<PartResult> ResultOf(const schema::PartHandoff& handoff,
                                    const RankPlan& plan,
                                    const kv::Options& kv_options) {
  PartResult result;
  const schema::StepRecord& record = handoff.record;
  result.record = record.parts.front();
  result.tree.digest = result.record.tree;
  result.tree.root = handoff.tree_root;
  for (const std::string& page : handoff.tree_pages) {
    result.tree.pages.emplace_back(base::DigestOf(page), page);
  }
  for (const auto& [key, value] : handoff.segments) {
    const auto fields = schema::DecodeSegmentKey(key);
    CKPTREE_ASSIGN_OR_RETURN(const schema::SegmentRow row,
                             schema::DecodeSegmentRow(value));
    if (!fields.has_value()) return absl::DataLossError("a segment's key");
    BuiltSegment segment;
    segment.row_key = key;
    segment.row_value = value;
    segment.staged.space = fields->space;
    segment.staged.path =
        SegmentPath(plan.staging, fields->space, fields->part, fields->builder);
    segment.staged.first_key = schema::SegmentHeaderKey(*fields);
    segment.staged.last_key = schema::SegmentTableKey(*fields);
    segment.blocks = row.block_count;
    CKPTREE_ASSIGN_OR_RETURN(segment.staged.file_bytes,
                             kv::FileSize(kv_options, segment.staged.path));
    result.segments.push_back(std::move(segment));
  }
  result.small = handoff.small;
  if (!handoff.dead.parts.empty()) result.dead = handoff.dead.parts[0].runs;
  result.leaf_count = record.leaf_count;
  result.changed_leaves = record.changed_leaves;
  result.logical_bytes = record.logical_bytes;
  result.new_bytes = record.new_bytes;
  result.nan_count = record.nan_count;
  result.inf_count = record.inf_count;
  result.nonfinite_leaves = record.nonfinite_leaves;
  result.digest = record.digest;
  return result;
}

absl::Status CommitParts(
    const Store& store, std::int64_t step,
    std::function<
        absl::StatusOr<std::vector<schema::PartHandoff>>(const RankPlan&)>
        gather) {
  Engine& engine = StoreEngine::Of(store);
  CKPTREE_RETURN_IF_ERROR(engine.CheckWritable());
  const auto save = std::make_shared<Save>(kMainBranch, step, SaveOptions());
  Save* const raw = save.get();
  save->gather =
      [gather = std::move(gather), &engine](
          const RankPlan& plan) -> absl::StatusOr<std::vector<PartResult>> {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::PartHandoff> handoffs,
                             gather(plan));
    std::vector<PartResult> results;
    for (const schema::PartHandoff& handoff : handoffs) {
      CKPTREE_ASSIGN_OR_RETURN(
          PartResult result,
          ResultOf(handoff, plan, engine.writer()->kv_options()));
      results.push_back(std::move(result));
    }
    return results;
  };
  save->content = std::make_shared<StagedContent>(
      StepContent(), engine.options().chunk_bytes, &engine.pool(),
      [raw] { raw->SetStaged(); });
  CKPTREE_RETURN_IF_ERROR(save->content->StageInline());
  if (!engine.writer()->Submit(save)) {
    return absl::FailedPreconditionError("the store was closed");
  }
  return save->WaitCommitted(absl::InfiniteDuration());
}

}  // namespace ckptree::internal
