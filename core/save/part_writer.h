// SPDX-License-Identifier: Apache-2.0

// Compares one part of a save with its base and writes what is new: steps 3
// and 4 of the save protocol (core/save/README.md).

#ifndef CKPTREE_CORE_SAVE_PART_WRITER_H_
#define CKPTREE_CORE_SAVE_PART_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/save/block_sink.h"
#include "core/save/part_task.h"
#include "core/save/staged_content.h"
#include "core/version/compact_part.h"
#include "schema/dead_list.h"
#include "schema/part_handoff.h"
#include "schema/step_record.h"

namespace ckptree::internal {

// What a part contributes to the commit, and the base of the next save.
struct PartResult {
  schema::PartRecord record;
  // Without a root where another process has the base's. Never null.
  std::shared_ptr<const schema::EncodedTree> tree;
  std::vector<BuiltSegment> segments;
  // Key and value of each record for `small`, header included, ascending.
  std::vector<std::pair<std::string, std::string>> small;
  std::vector<schema::BlockRun> dead;

  // Leaves are counted without those of `layout.split`.
  std::uint64_t leaf_count = 0;
  std::uint64_t changed_leaves = 0;
  std::uint64_t logical_bytes = 0;
  std::uint64_t new_bytes = 0;
  std::uint64_t records_written = 0;
  std::uint64_t chunks_written = 0;
  LaneTimes times;  // See BlockSink::times().
  std::uint64_t nan_count = 0;
  std::uint64_t inf_count = 0;
  std::uint64_t nonfinite_leaves = 0;
  std::uint64_t unknown_leaves = 0;
  // Over the tree's digest and every leaf's value digest in order.
  base::Digest digest;

  // Of a part among others.
  bool whole = false;  // Compared with nothing, whatever the base has.
  schema::PartLayout layout;
  std::optional<schema::PartOrigin> origin;

  std::shared_ptr<const CompactPart>
      next;  // Null where another process has it.
  // What the work leaves to be freed: best when nobody waits any more.
  std::shared_ptr<const void> leftovers;
};

// Runs inside a TBB arena and spreads over it. `base` may be null: everything
// is new. The base's blocks must not be freed until it returns. On error
// nothing but files in the staging folder is left.
absl::StatusOr<PartResult> WritePart(const PartTask& task,
                                     StagedContent* content,
                                     const CompactPart* base);

// The digest of a step from those of its parts, ascending by number.
base::Digest StepDigest(const std::vector<base::Digest>& parts);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_WRITER_H_
