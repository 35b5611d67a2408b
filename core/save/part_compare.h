// SPDX-License-Identifier: Apache-2.0

// Compares the leaves of a part with its base and writes the chunks that are
// new: steps 3 and 4 of the save protocol for values.

#ifndef CKPTREE_CORE_SAVE_PART_COMPARE_H_
#define CKPTREE_CORE_SAVE_PART_COMPARE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/save/block_sink.h"
#include "core/save/part_task.h"
#include "core/save/staged_content.h"
#include "core/version/base_part.h"
#include "schema/leaf_record.h"
#include "tbb/enumerable_thread_specific.h"

namespace ckptree::internal {

inline constexpr std::uint32_t kNotWritten = 0xffffffff;

// What is found out about one leaf.
struct ComparedLeaf {
  const BaseLeaf* base = nullptr;  // Same path, kind, type and shape.
  bool changed = false;            // The value differs from the base.
  bool rewrite = false;            // Equal, but leaves its pack.
  std::vector<schema::ChunkRef> refs;
  std::vector<Statistics> statistics;
  // Parallel to refs: index in the sink, kNotWritten where the base's is kept.
  std::vector<std::uint32_t> block;
};

// Runs inside a TBB arena and spreads over it. Confined to one thread.
class PartCompare {
 public:
  // All outlive this; `base` may be null.
  PartCompare(const PartTask& task, StagedContent* content,
              const BasePart* base, BlockSink* sink);

  // Finds out what changed and hands it to the sink; releases every piece.
  absl::Status Run();

  // By ordinal; filled by Run(). The caller may move out of them.
  std::vector<ComparedLeaf>& leaves() { return leaves_; }

 private:
  struct Pack {
    std::vector<std::pair<std::size_t, std::uint32_t>> members;  // piece, leaf
    std::uint64_t bytes = 0;
  };

  void Match();
  bool WantsStatistics(const SourceLeaf& leaf) const;
  std::optional<std::int64_t> Elements(const StagedContent::Piece& piece) const;
  absl::Status ComparePieces();
  void PrepareRefs();
  absl::Status CompareChunk(std::size_t index);
  absl::Status WriteChunk(const StagedContent::Piece& piece,
                          const SourceLeaf& source, std::size_t at,
                          std::span<const std::byte> bytes, ComparedLeaf* leaf);
  absl::Status CompareRun(std::size_t index);
  void CompareInline();
  void LeaveThinPacks();
  absl::Status WritePacks();
  absl::Status WritePack(const Pack& pack);
  void ReleaseRuns();

  const PartTask& task_;
  StagedContent& staged_;
  const StepContent& content_;
  const BasePart* const base_;
  BlockSink& sink_;
  std::vector<ComparedLeaf> leaves_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> scratch_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> pack_scratch_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_COMPARE_H_
