// SPDX-License-Identifier: Apache-2.0

// The commit that collects versions.

#ifndef CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_
#define CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/collect/collect_plan.h"
#include "kv/database.h"
#include "kv/near_rows.h"
#include "schema/dead_list.h"
#include "schema/segment_record.h"
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
// the tip of its branch moves, if that was not dropped. Trees stay: see
// DeadTrees. kDataLoss where the rows do not fit the plan.
//
// Of several versions, ascending: each plan is made of what the ones before
// leave, which the database does not know yet. Not thread-safe. The database
// outlives it.
class CollectBatch {
 public:
  explicit CollectBatch(const kv::Database& database);

  // As it is once those that were added are collected.
  absl::StatusOr<schema::DeadList> DeadListOf(std::uint64_t version);
  // `parts`: of the plan's version. After an error it is of no use any more.
  absl::Status Add(const CollectPlan& plan,
                   const std::vector<schema::PartRecord>& parts);
  // Keys and values of the commit, at most.
  std::size_t bytes() const { return bytes_; }
  absl::StatusOr<CollectCommit> Finish();

 private:
  struct Segment {
    schema::SegmentRow row;
    std::uint64_t bytes = 0;  // That die now.
    std::uint64_t died_at = 0;
  };

  struct Tip {
    std::uint64_t collected = 0;  // What was the tip when this was planned.
    std::uint64_t after = 0;
  };

  // The row of a segment that loses `run`.
  absl::Status MarkDead(std::uint16_t part, const schema::BlockRun& run,
                        std::uint64_t died_at);

  const kv::Database& database_;
  kv::NearRows dead_lists_;
  CollectCommit commit_;
  std::map<std::string, Segment> segments_;          // By key; each read once.
  std::map<std::uint64_t, schema::DeadList> lists_;  // Those that change.
  std::map<std::uint32_t, Tip> tips_;                // By branch.
  std::size_t bytes_ = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_COLLECT_COMMIT_H_
