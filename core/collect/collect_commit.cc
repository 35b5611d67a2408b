// SPDX-License-Identifier: Apache-2.0

#include "core/collect/collect_commit.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

using schema::BlockKind;
using schema::BlockRun;
using schema::Space;

// The rows of the segments that lose blocks, each read once.
class DeadCounts {
 public:
  explicit DeadCounts(const kv::Database& database) : database_(database) {}

  absl::Status Add(std::uint16_t part, const BlockRun& run) {
    const std::string key = schema::SegmentKey(run.version, part, run.place,
                                               schema::BuilderOf(run.first_n));
    auto it = rows_.find(key);
    if (it == rows_.end()) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                               database_.Get(Space::kRecords, key));
      if (!bytes.has_value()) {
        return absl::DataLossError(absl::StrFormat(
            "%s is missing", schema::DescribeKey(Space::kRecords, key)));
      }
      Segment segment;
      CKPTREE_ASSIGN_OR_RETURN(segment.row, schema::DecodeSegmentRow(*bytes));
      it = rows_.emplace(key, std::move(segment)).first;
    }
    it->second.bytes += run.bytes;
    const absl::Status status = schema::MarkDead(
        schema::SequenceOf(run.first_n), run.count, run.bytes, &it->second.row);
    if (status.ok()) return status;
    return absl::Status(
        status.code(),
        absl::StrFormat("%s: %s", schema::DescribeKey(Space::kRecords, key),
                        status.message()));
  }

  void Finish(std::uint64_t died_at, CollectCommit* commit) {
    for (auto& [key, segment] : rows_) {
      schema::SegmentRow& row = segment.row;
      if (row.dead_count() < row.block_count) {
        row.died_at = died_at;
        commit->half_dead_bytes += segment.bytes;
        commit->request.batch.Put(Space::kRecords, key,
                                  schema::EncodeSegmentRow(row));
        continue;
      }
      commit->request.batch.Delete(Space::kRecords, key);
      const auto fields = schema::DecodeSegmentKey(key);
      const schema::KeyRange range = schema::BlocksOfSegment(
          fields->version, fields->part, fields->builder);
      commit->dead_segments.push_back(
          {fields->space, {range.begin, range.end}});
    }
  }

 private:
  struct Segment {
    schema::SegmentRow row;
    std::uint64_t bytes = 0;
  };

  const kv::Database& database_;
  std::map<std::string, Segment> rows_;
};

}  // namespace

absl::StatusOr<CollectCommit> BuildCollectCommit(
    const kv::Database& database, const CollectPlan& plan,
    const std::vector<schema::PartRecord>& parts) {
  CollectCommit commit;
  const ChainStep& step = plan.step;
  commit.request.kind = kv::CommitKind::kCollect;
  commit.request.version = step.version;
  kv::WriteBatch& batch = commit.request.batch;

  DeadCounts dead_counts(database);
  for (const schema::DeadPart& part : plan.freed) {
    for (const BlockRun& run : part.runs) {
      if (run.place != Space::kSmall) {
        CKPTREE_RETURN_IF_ERROR(dead_counts.Add(part.part, run));
        continue;
      }
      for (std::uint32_t i = 0; i < run.count; ++i) {
        batch.Delete(Space::kSmall,
                     schema::SmallKey(run.version, part.part, run.kind,
                                      run.first_n + i));
      }
    }
  }
  dead_counts.Finish(step.successor == 0 ? step.version : step.successor,
                     &commit);

  for (const schema::PartRecord& part : parts) {
    const std::string key =
        schema::SmallKey(step.version, part.part, BlockKind::kHeader, 0);
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             database.Get(Space::kSmall, key));
    if (!bytes.has_value()) continue;
    batch.Delete(Space::kSmall, key);
  }

  batch.Delete(Space::kRecords, schema::DeadKey(step.version));
  batch.Delete(Space::kRecords, schema::RemovedKey(step.version));
  batch.Delete(Space::kRecords, schema::StepMetaKey(step.version));
  commit.request.preconditions.push_back(
      {Space::kRecords, schema::PinKey(step.version), std::nullopt});
  if (step.successor != 0) {
    const std::string key = schema::DeadKey(step.successor);
    batch.Put(Space::kRecords, key,
              schema::EncodeDeadList(plan.successor_list));
  }
  if (step.tip.has_value()) {
    const std::string key = schema::BranchKey(step.branch);
    CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                             database.Get(Space::kRecords, key));
    if (!bytes.has_value()) {
      return absl::DataLossError(
          absl::StrFormat("the row of branch %d is missing", step.branch));
    }
    CKPTREE_ASSIGN_OR_RETURN(schema::BranchRecord branch,
                             schema::DecodeBranchRecord(*bytes));
    branch.tip = *step.tip;
    batch.Put(Space::kRecords, key, schema::EncodeBranchRecord(branch));
    commit.request.preconditions.push_back(
        {Space::kRecords, key, std::move(bytes)});
  }
  return commit;
}

}  // namespace ckptree::internal
