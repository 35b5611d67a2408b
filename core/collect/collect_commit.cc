// SPDX-License-Identifier: Apache-2.0

#include "core/collect/collect_commit.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/open_check.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

using schema::BlockKind;
using schema::BlockRun;
using schema::Space;

// About what a run takes in the row of a segment or in a dead list.
constexpr std::size_t kRunBytes = 32;

absl::Status In(const std::string& key, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrFormat("%s: %s", schema::DescribeKey(Space::kRecords, key),
                      status.message()));
}

std::size_t RunsOf(const schema::DeadList& list) {
  std::size_t runs = 0;
  for (const schema::DeadPart& part : list.parts) runs += part.runs.size();
  return runs;
}

}  // namespace

CollectBatch::CollectBatch(const kv::Database& database)
    : database_(database), dead_lists_(database) {
  commit_.request.kind = kv::CommitKind::kCollect;
}

absl::StatusOr<schema::DeadList> CollectBatch::DeadListOf(
    std::uint64_t version) {
  const auto changed = lists_.find(version);
  if (changed != lists_.end()) return changed->second;
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string_view> row,
                           dead_lists_.Find(schema::DeadKey(version)));
  if (row.has_value()) return schema::DecodeDeadList(*row);
  return ReadDeadList(database_, version);
}

absl::Status CollectBatch::MarkDead(std::uint16_t part, const BlockRun& run,
                                    std::uint64_t died_at) {
  const std::string key = schema::SegmentKey(run.version, part, run.place,
                                             schema::BuilderOf(run.first_n));
  auto it = segments_.find(key);
  if (it == segments_.end()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             database_.Get(Space::kRecords, key));
    if (!bytes.has_value()) {
      return absl::DataLossError(absl::StrFormat(
          "%s is missing", schema::DescribeKey(Space::kRecords, key)));
    }
    Segment segment;
    CKPTREE_ASSIGN_OR_RETURN(segment.row, schema::DecodeSegmentRow(*bytes));
    bytes_ += key.size() + bytes->size();
    it = segments_.emplace(key, std::move(segment)).first;
  }
  it->second.bytes += run.bytes;
  it->second.died_at = died_at;
  bytes_ += kRunBytes;
  const absl::Status status = schema::MarkDead(
      schema::SequenceOf(run.first_n), run.count, run.bytes, &it->second.row);
  return status.ok() ? status : In(key, status);
}

absl::Status CollectBatch::Add(const CollectPlan& plan,
                               const std::vector<schema::PartRecord>& parts) {
  const ChainStep& step = plan.step;
  kv::WriteBatch& batch = commit_.request.batch;
  const std::size_t before = batch.bytes();
  const std::uint64_t died_at =
      step.successor == 0 ? step.version : step.successor;
  for (const schema::DeadPart& part : plan.freed) {
    for (const BlockRun& run : part.runs) {
      if (run.place != Space::kSmall) {
        CKPTREE_RETURN_IF_ERROR(MarkDead(part.part, run, died_at));
        continue;
      }
      for (std::uint32_t i = 0; i < run.count; ++i) {
        batch.Delete(Space::kSmall,
                     schema::SmallKey(run.version, part.part, run.kind,
                                      run.first_n + i));
      }
    }
  }
  for (const schema::PartRecord& part : parts) {
    const std::string key =
        schema::SmallKey(step.version, part.part, BlockKind::kHeader, 0);
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             database_.Get(Space::kSmall, key));
    if (!bytes.has_value()) continue;
    batch.Delete(Space::kSmall, key);
  }
  batch.Delete(Space::kRecords, schema::DeadKey(step.version));
  batch.Delete(Space::kRecords, schema::RemovedKey(step.version));
  batch.Delete(Space::kRecords, schema::StepMetaKey(step.version));
  bytes_ += batch.bytes() - before;
  commit_.request.version = step.version;
  commit_.request.preconditions.push_back(
      {Space::kRecords, schema::PinKey(step.version), std::nullopt});
  lists_.erase(step.version);
  if (step.successor != 0) {
    bytes_ += kRunBytes * RunsOf(plan.successor_list);
    lists_.insert_or_assign(step.successor, plan.successor_list);
  }
  if (step.tip.has_value()) {
    Tip& tip = tips_.try_emplace(step.branch, Tip{step.version}).first->second;
    tip.after = *step.tip;
  }
  return absl::OkStatus();
}

absl::StatusOr<CollectCommit> CollectBatch::Finish() {
  kv::WriteBatch& batch = commit_.request.batch;
  for (auto& [key, segment] : segments_) {
    schema::SegmentRow& row = segment.row;
    if (row.dead_count() < row.block_count) {
      row.died_at = segment.died_at;
      commit_.half_dead_bytes += segment.bytes;
      batch.Put(Space::kRecords, key, schema::EncodeSegmentRow(row));
      continue;
    }
    batch.Delete(Space::kRecords, key);
    const auto fields = schema::DecodeSegmentKey(key);
    CKPTREE_ASSIGN_OR_RETURN(const bool far, HasFarRow(database_, *fields));
    if (far) batch.Delete(Space::kRecords, schema::FarKey(*fields));
    const schema::KeyRange range =
        schema::BlocksOfSegment(fields->version, fields->part, fields->builder);
    commit_.dead_segments.push_back({fields->space, {range.begin, range.end}});
  }
  for (const auto& [version, list] : lists_) {
    batch.Put(Space::kRecords, schema::DeadKey(version),
              schema::EncodeDeadList(list));
  }
  for (const auto& [number, tip] : tips_) {
    const std::string key = schema::BranchKey(number);
    CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                             database_.Get(Space::kRecords, key));
    // It was dropped since. No other one gets its number while a version of it
    // is in the chain.
    if (!bytes.has_value()) continue;
    CKPTREE_ASSIGN_OR_RETURN(schema::BranchRecord branch,
                             schema::DecodeBranchRecord(*bytes));
    if (branch.tip != tip.collected) continue;  // A copy has set another.
    branch.tip = tip.after;
    batch.Put(Space::kRecords, key, schema::EncodeBranchRecord(branch));
    commit_.request.preconditions.push_back(
        {Space::kRecords, key, std::move(bytes)});
  }
  return std::move(commit_);
}

}  // namespace ckptree::internal
