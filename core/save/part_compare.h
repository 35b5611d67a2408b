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
#include "base/mapped_vector.h"
#include "core/array/pack_layout.h"
#include "core/save/block_sink.h"
#include "core/save/part_task.h"
#include "core/save/staged_content.h"
#include "core/version/compact_part.h"
#include "schema/leaf_record.h"
#include "tbb/enumerable_thread_specific.h"

namespace ckptree::internal {

inline constexpr std::uint32_t kNotWritten = 0xffffffff;

inline constexpr std::uint32_t kNoBase = 0xffffffff;

// What is found out about one leaf.
struct ComparedLeaf {
  // Which leaf of the base has the same path, kind, type and shape.
  std::uint32_t base = kNoBase;
  bool changed = false;  // The value differs from the base.
  bool rewrite = false;  // Equal, but leaves its block.
  // The base does not say whether it has a NaN or an Inf, and this save does:
  // where it is equal it gets a new record, and its chunks stay.
  bool says_more = false;
  // Its chunks in what PartCompare has of all leaves.
  std::uint32_t first_chunk = 0;
  std::uint32_t chunk_count = 0;
};

// A chunk of a leaf.
struct ComparedChunk {
  schema::ChunkRef ref;
  // Index in the sink, kNotWritten where the base's is kept.
  std::uint32_t block = kNotWritten;
  bool moved = false;  // The base has the same elsewhere.
};

// Runs inside a TBB arena and spreads over it. Confined to one thread.
class PartCompare {
 public:
  // All outlive this; `base` may be null. With `all_records` every leaf gets a
  // new record, whether or not it changed.
  PartCompare(const PartTask& task, StagedContent* content,
              const CompactPart* base, bool all_records, BlockSink* sink);

  // Finds out what changed and hands it to the sink; releases every piece.
  absl::Status Run();

  // By ordinal; filled by Run().
  const std::vector<ComparedLeaf>& leaves() const { return leaves_; }
  std::span<const ComparedChunk> chunks(std::size_t ordinal) const {
    return std::span(chunks_).subspan(leaves_[ordinal].first_chunk,
                                      leaves_[ordinal].chunk_count);
  }
  // For each chunk of a leaf that gets a new record; none where the leaf has
  // no statistics, or is in its record.
  std::span<const Statistics> statistics(std::size_t ordinal) const;
  bool WantsStatistics(const SourceLeaf& leaf) const;
  // Whether packs have room for proofs behind their slices, zeros so far.
  bool packs_have_proofs() const { return packs_ == PackLayout::Kind::kProved; }

 private:
  struct Pack {
    std::vector<std::pair<std::size_t, std::uint32_t>> members;  // piece, leaf
    std::uint64_t bytes = 0;
  };

  absl::Status Match();
  void FindUnknown();
  std::optional<std::int64_t> Elements(const StagedContent::Piece& piece) const;
  absl::Status ComparePieces();
  void PrepareChunks();
  // What the base has of this piece: the same box, the same bytes, or nothing.
  // `statistics`: the base's, null where it does not say.
  std::optional<schema::ChunkRef> FindShared(
      const ComparedLeaf& leaf, const SourceLeaf& source,
      const StagedContent::Piece& piece, const base::Digest& digest,
      std::uint64_t bytes, const Statistics** statistics) const;
  bool SameChunks(std::size_t ordinal) const;
  // A chunk that is compared, and is to be shared or written.
  struct Chunk {
    std::size_t piece = 0;
    std::size_t at = 0;  // In chunks_.
    std::span<const std::byte> bytes;
    std::optional<schema::ChunkRef> shared;
  };

  absl::Status CompareChunk(std::size_t index);
  // `scratch` is for its bytes.
  absl::StatusOr<Chunk> Look(std::size_t index,
                             std::vector<std::byte>* scratch);
  // The chunk stays in no block of the base.
  void Move(Chunk* chunk);
  // Nobody can read its block any more.
  bool IsLost(const schema::ChunkRef& ref) const;
  absl::Status ShareOrWrite(const Chunk& chunk);
  absl::Status WriteChunk(const Chunk& chunk);
  // A chunk and its rounded copy, in one block.
  absl::Status WriteBoth(const Chunk& master, const Chunk& copy);
  schema::TableSlice SliceOfChunk(const Chunk& chunk) const;
  std::uint64_t OrderOf(const Chunk& chunk) const;
  absl::Status CompareRun(std::size_t index);
  void CompareInline();
  void LeaveThinPacks();
  // Whether a packed leaf gets into a pack of this save.
  static bool IsWritten(const ComparedLeaf& leaf) {
    return leaf.changed || leaf.rewrite;
  }
  // How leaves are put into packs: with proofs where all that is new stays in
  // `small` with them, too.
  PackLayout::Kind KindOfPacks() const;
  absl::Status WritePacks();
  absl::Status WritePack(const Pack& pack);
  void ReleaseRuns();

  const PartTask& task_;
  StagedContent& staged_;
  const StepContent& content_;
  const CompactPart* const base_;
  const bool all_records_;
  const bool some_lost_;
  BlockSink& sink_;
  PackLayout::Kind packs_ = PackLayout::Kind::kPlain;
  std::vector<ComparedLeaf> leaves_;
  base::MappedVector<ComparedChunk> chunks_;
  base::MappedVector<Statistics> statistics_;  // Parallel to chunks_, or empty.
  tbb::enumerable_thread_specific<std::vector<std::byte>> scratch_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> copy_scratch_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> pack_scratch_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_COMPARE_H_
