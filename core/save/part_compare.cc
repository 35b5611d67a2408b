// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk and per leaf.

#include "core/save/part_compare.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/status_macros.h"
#include "ckptree/dtype.h"
#include "core/array/leaf_statistics.h"
#include "core/coding/rounded_copy.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "core/version/block_payload.h"
#include "schema/dead_list.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

namespace ckptree::internal {
namespace {

using base::Digest;
using schema::ChunkRef;
using schema::LeafRecord;

Statistics StatisticsOf(const SourceLeaf& leaf,
                        std::span<const std::byte> bytes,
                        std::optional<std::int64_t> elements) {
  return ComputeStatistics(leaf.entry().dtype, leaf.entry().packed, bytes,
                           elements);
}

// Of a packed leaf.
Statistics RunStatistics(const SourceLeaf& leaf,
                         std::span<const std::byte> bytes) {
  return StatisticsOf(leaf, bytes, ElementCount(leaf.box(0).shape));
}

// Index of the leaf's first chunk of box `b`.
std::size_t FirstChunk(const std::vector<schema::Box>& boxes, std::size_t b) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < b; ++i) {
    first += static_cast<std::size_t>(schema::ChunkCount(boxes[i]));
  }
  return first;
}

schema::TableSlice SliceOf(const SourceLeaf& leaf, std::uint32_t box,
                           const ChunkGrid::Cell* cell) {
  schema::TableSlice slice;
  slice.path = base::DigestOf(leaf.path);
  if (cell != nullptr) {
    slice.start = cell->start;
    slice.shape = cell->shape;
  } else if (leaf.box_count != 0) {
    slice.start = leaf.box(box).start;
    slice.shape = leaf.box(box).shape;
  }
  return slice;
}

// A copy behind its master: of a chunk of a leaf that is not packed the only
// thing that has something before it in its block.
bool IsCopyInBlock(const ChunkRef& ref) { return ref.offset != 0; }

bool SameBlock(const ChunkRef& a, const ChunkRef& b) {
  return a.place == b.place && a.version == b.version && a.part == b.part &&
         a.n == b.n;
}

bool AnyMoved(std::span<const ComparedChunk> chunks) {
  return std::any_of(chunks.begin(), chunks.end(),
                     [](const ComparedChunk& chunk) { return chunk.moved; });
}

std::uint64_t Order(std::uint32_t leaf, std::size_t chunk) {
  return (std::uint64_t{leaf} << 32) | chunk;
}

}  // namespace

PartCompare::PartCompare(const PartTask& task, StagedContent* content,
                         const CompactPart* base, bool all_records,
                         BlockSink* sink)
    : task_(task),
      staged_(*content),
      content_(content->content()),
      base_(base),
      all_records_(all_records),
      some_lost_(task.database != nullptr && task.database->HasLost()),
      sink_(*sink),
      leaves_(content_.leaves.size()) {}

absl::Status PartCompare::Run() {
  CKPTREE_RETURN_IF_ERROR(Match());
  FindUnknown();
  CKPTREE_RETURN_IF_ERROR(ComparePieces());
  CompareInline();
  LeaveThinPacks();
  CKPTREE_RETURN_IF_ERROR(WritePacks());
  ReleaseRuns();
  return absl::OkStatus();
}

// Finds the base's leaf of the same path, kind, type and shape.
absl::Status PartCompare::Match() {
  if (base_ == nullptr) return absl::OkStatus();
  if (base_->tree_digest() == content_.tree->digest) {
    for (std::uint32_t i = 0; i < leaves_.size(); ++i) leaves_[i].base = i;
    return absl::OkStatus();
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::TreeEntry> entries,
                           schema::DecodeTree(*base_->tree()));
  // Both ascend.
  std::size_t i = 0;
  std::uint32_t ordinal = 0;
  for (const schema::TreeEntry& old : entries) {
    if (!IsLeaf(old.kind)) continue;
    const std::uint32_t of_base = ordinal++;
    while (i < leaves_.size() && content_.leaves[i].path < old.path) ++i;
    if (i == leaves_.size()) break;
    const schema::TreeEntry& entry = content_.leaves[i].entry();
    if (content_.leaves[i].path == old.path && old.kind == entry.kind &&
        old.dtype == entry.dtype && old.packed == entry.packed &&
        old.shape == entry.shape) {
      leaves_[i].base = of_base;
    }
  }
  return absl::OkStatus();
}

void PartCompare::FindUnknown() {
  if (base_ == nullptr || !task_.statistics) return;
  for (ComparedLeaf& leaf : leaves_) {
    leaf.says_more = leaf.base != kNoBase && base_->is_unknown(leaf.base);
  }
}

bool PartCompare::WantsStatistics(const SourceLeaf& leaf) const {
  return task_.statistics && leaf.entry().kind == EntryKind::kArray;
}

std::span<const Statistics> PartCompare::statistics(std::size_t ordinal) const {
  if (!WantsStatistics(content_.leaves[ordinal])) return {};
  return std::span(statistics_)
      .subspan(leaves_[ordinal].first_chunk, leaves_[ordinal].chunk_count);
}

std::optional<ChunkRef> PartCompare::FindShared(
    const ComparedLeaf& leaf, const SourceLeaf& source,
    const StagedContent::Piece& piece, const Digest& digest,
    std::uint64_t bytes, const Statistics** statistics) const {
  *statistics = nullptr;
  if (leaf.base == kNoBase || base_->is_inline(leaf.base)) return std::nullopt;
  const LeafRecord* const record = base_->record(leaf.base);
  if (record == nullptr) {
    // It has one chunk, and its digest says of which box and length.
    if (leaf.chunk_count != 1 || source.box_count > 1) return std::nullopt;
    const Digest value = schema::ChunkValueDigest(
        source.byte_length, source.box_count == 0 ? nullptr : &source.box(0),
        digest);
    if (value != base_->value(leaf.base)) return std::nullopt;
    return base_->Reference(leaf.base, digest);
  }
  std::size_t first = 0;
  if (source.box_count != 0) {
    const schema::Box& box = source.box(piece.box);
    const auto it = std::find(record->boxes.begin(), record->boxes.end(), box);
    if (it == record->boxes.end()) return std::nullopt;
    first = FirstChunk(record->boxes,
                       static_cast<std::size_t>(it - record->boxes.begin()));
  } else if (!record->boxes.empty()) {
    return std::nullopt;
  }
  const std::size_t index = first + static_cast<std::size_t>(piece.cell);
  if (index >= record->chunks.size()) return std::nullopt;
  const ChunkRef& ref = record->chunks[index];
  if (ref.digest != digest || ref.length != bytes) return std::nullopt;
  if (index < record->statistics.size()) {
    *statistics = &record->statistics[index];
  }
  return ref;
}

bool PartCompare::SameChunks(std::size_t ordinal) const {
  const SourceLeaf& source = content_.leaves[ordinal];
  const ComparedLeaf& leaf = leaves_[ordinal];
  if (leaf.base == kNoBase || base_->is_inline(leaf.base)) return false;
  const std::span<const ComparedChunk> now = chunks(ordinal);
  const LeafRecord* const record = base_->record(leaf.base);
  // Without a record it has one chunk, which is shared where it is the same.
  if (record == nullptr) {
    return now.size() == 1 && (now[0].moved || now[0].block == kNotWritten);
  }
  if (record->boxes.size() != source.box_count ||
      record->byte_length != source.byte_length) {
    return false;
  }
  for (std::size_t b = 0; b < source.box_count; ++b) {
    if (!(record->boxes[b] == source.box(b))) return false;
  }
  return std::equal(now.begin(), now.end(), record->chunks.begin(),
                    record->chunks.end(),
                    [](const ComparedChunk& chunk, const ChunkRef& ref) {
                      return chunk.moved || chunk.ref == ref;
                    });
}

// Step 3 for chunked leaves (and step 4 at once), step 3 for runs.
absl::Status PartCompare::ComparePieces() {
  PrepareChunks();
  FirstError error;
  // Each thread has a stretch of them, but of those that are being fetched: who
  // fetches goes from the first to the last, a pool ahead of who compares.
  const bool in_order = staged_.fetched_count() > 0;
  std::atomic<std::size_t> next{0};
  tbb::parallel_for(
      tbb::blocked_range<std::size_t>(0, staged_.piece_count(), 1),
      [&](const tbb::blocked_range<std::size_t>& range) {
        for (std::size_t at = range.begin(); at != range.end(); ++at) {
          if (error.any()) return;
          const std::size_t i = in_order ? next.fetch_add(1) : at;
          const ThreadLimit::Piece piece(task_.limit);
          absl::Status status = task_.check();
          if (status.ok()) {
            // A copy is looked at with its master.
            if (staged_.piece(i).is_copy) continue;
            staged_.Take(i);
            status = staged_.FetchTaken(i);
          }
          if (status.ok() && staged_.piece(i).copy_follows) {
            staged_.Take(i + 1);
            status = staged_.FetchTaken(i + 1);
          }
          if (status.ok()) {
            status = staged_.piece(i).run ? CompareRun(i) : CompareChunk(i);
          }
          error.Note(status);
        }
      },
      tbb::simple_partitioner());
  return error.status();
}

void PartCompare::PrepareChunks() {
  std::uint32_t chunks = 0;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const SourceLeaf& source = content_.leaves[i];
    std::int64_t count = 0;
    if (source.form == LeafForm::kPacked) {
      count = 1;
    } else if (source.form == LeafForm::kChunked) {
      count = staged_.chunk_count(static_cast<std::uint32_t>(i));
    }
    leaves_[i].first_chunk = chunks;
    leaves_[i].chunk_count = static_cast<std::uint32_t>(count);
    chunks += leaves_[i].chunk_count;
  }
  chunks_.resize(chunks);
  if (task_.statistics) statistics_.resize(chunks);
}

absl::StatusOr<PartCompare::Chunk> PartCompare::Look(
    std::size_t index, std::vector<std::byte>* scratch) {
  const StagedContent::Piece& piece = staged_.piece(index);
  const SourceLeaf& source = content_.leaves[piece.leaf];
  const ComparedLeaf& leaf = leaves_[piece.leaf];
  Chunk chunk;
  chunk.piece = index;
  chunk.at = leaf.first_chunk + static_cast<std::size_t>(piece.cell);
  for (std::uint32_t b = 0; b < piece.box; ++b) {
    chunk.at += static_cast<std::size_t>(staged_.grid(piece.leaf, b).count());
  }
  CKPTREE_ASSIGN_OR_RETURN(chunk.bytes,
                           staged_.Bytes(index, piece.leaf, scratch));
  const Digest digest = base::DigestOf(chunk.bytes);
  chunks_[chunk.at].ref.digest = digest;
  task_.counters->compared.fetch_add(chunk.bytes.size(),
                                     std::memory_order_relaxed);
  const Statistics* known = nullptr;
  chunk.shared =
      FindShared(leaf, source, piece, digest, chunk.bytes.size(), &known);
  if (WantsStatistics(source)) {
    statistics_[chunk.at] =
        known != nullptr ? *known
                         : StatisticsOf(source, chunk.bytes, Elements(piece));
  }
  return chunk;
}

absl::Status PartCompare::CompareChunk(std::size_t index) {
  CKPTREE_ASSIGN_OR_RETURN(Chunk chunk, Look(index, &scratch_.local()));
  if (chunk.shared.has_value() && IsLost(*chunk.shared)) Move(&chunk);
  if (!staged_.piece(index).copy_follows) {
    if (chunk.shared.has_value() && IsCopyInBlock(*chunk.shared)) Move(&chunk);
    return ShareOrWrite(chunk);
  }
  CKPTREE_ASSIGN_OR_RETURN(Chunk copy, Look(index + 1, &copy_scratch_.local()));
  if (copy.shared.has_value() && IsLost(*copy.shared)) Move(&copy);
  const bool with_its_master = chunk.shared.has_value() &&
                               copy.shared.has_value() &&
                               SameBlock(*chunk.shared, *copy.shared);
  if (copy.shared.has_value() && IsCopyInBlock(*copy.shared) &&
      !with_its_master) {
    Move(&copy);
  }
  if (!chunk.shared.has_value() && !copy.shared.has_value() &&
      IsRoundedCopy(chunk.bytes, copy.bytes)) {
    return WriteBoth(chunk, copy);
  }
  CKPTREE_RETURN_IF_ERROR(ShareOrWrite(chunk));
  return ShareOrWrite(copy);
}

bool PartCompare::IsLost(const ChunkRef& ref) const {
  return some_lost_ && task_.database->IsLost(ref.place, ChunkKey(ref));
}

void PartCompare::Move(Chunk* chunk) {
  chunk->shared.reset();
  chunks_[chunk->at].moved = true;
}

absl::Status PartCompare::ShareOrWrite(const Chunk& chunk) {
  if (chunk.shared.has_value()) {
    chunks_[chunk.at].ref = *chunk.shared;
    task_.counters->unchanged.fetch_add(chunk.bytes.size(),
                                        std::memory_order_relaxed);
  } else {
    CKPTREE_RETURN_IF_ERROR(WriteChunk(chunk));
  }
  staged_.Release(chunk.piece);
  return absl::OkStatus();
}

std::optional<std::int64_t> PartCompare::Elements(
    const StagedContent::Piece& piece) const {
  if (content_.leaves[piece.leaf].box_count == 0) return std::nullopt;
  return staged_.grid(piece.leaf, piece.box).cell_elements(piece.cell);
}

schema::TableSlice PartCompare::SliceOfChunk(const Chunk& chunk) const {
  const StagedContent::Piece& piece = staged_.piece(chunk.piece);
  const SourceLeaf& source = content_.leaves[piece.leaf];
  const ChunkRef& ref = chunks_[chunk.at].ref;
  schema::TableSlice slice;
  if (source.box_count == 0) {
    slice = SliceOf(source, 0, nullptr);
  } else {
    const ChunkGrid::Cell cell =
        staged_.grid(piece.leaf, piece.box).cell(piece.cell);
    slice = SliceOf(source, piece.box, &cell);
  }
  slice.offset = ref.offset;
  slice.length = ref.length;
  slice.digest = ref.digest;
  return slice;
}

std::uint64_t PartCompare::OrderOf(const Chunk& chunk) const {
  const std::uint32_t leaf = staged_.piece(chunk.piece).leaf;
  return Order(leaf, chunk.at - leaves_[leaf].first_chunk);
}

absl::Status PartCompare::WriteChunk(const Chunk& chunk) {
  ChunkRef& ref = chunks_[chunk.at].ref;
  const auto size = static_cast<std::uint32_t>(chunk.bytes.size());
  ref.length = ref.block_length = size;
  CKPTREE_ASSIGN_OR_RETURN(
      chunks_[chunk.at].block,
      sink_.Write(OrderOf(chunk), chunk.bytes, {SliceOfChunk(chunk)}));
  task_.counters->written.fetch_add(size, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status PartCompare::WriteBoth(const Chunk& master, const Chunk& copy) {
  const std::size_t size = master.bytes.size() + copy.bytes.size();
  std::vector<std::byte>& payload = pack_scratch_.local();
  if (payload.size() < size) payload.resize(size);
  std::memcpy(payload.data(), master.bytes.data(), master.bytes.size());
  std::memcpy(payload.data() + master.bytes.size(), copy.bytes.data(),
              copy.bytes.size());
  std::vector<schema::TableSlice> slices;
  std::uint32_t offset = 0;
  for (const Chunk* chunk : {&master, &copy}) {
    ChunkRef& ref = chunks_[chunk->at].ref;
    ref.offset = offset;
    ref.length = static_cast<std::uint32_t>(chunk->bytes.size());
    ref.block_length = static_cast<std::uint32_t>(size);
    offset += ref.length;
    slices.push_back(SliceOfChunk(*chunk));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::uint32_t block,
      sink_.Write(OrderOf(master), std::span(payload).first(size),
                  std::move(slices)));
  task_.counters->written.fetch_add(size, std::memory_order_relaxed);
  for (const Chunk* chunk : {&master, &copy}) {
    chunks_[chunk->at].block = block;
    staged_.Release(chunk->piece);
  }
  return absl::OkStatus();
}

absl::Status PartCompare::CompareRun(std::size_t index) {
  const StagedContent::Piece& piece = staged_.piece(index);
  for (std::uint32_t i = piece.leaf; i < piece.leaf_end; ++i) {
    const SourceLeaf& source = content_.leaves[i];
    ComparedLeaf& leaf = leaves_[i];
    CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             staged_.Bytes(index, i, &scratch_.local()));
    ChunkRef& ref = chunks_[leaf.first_chunk].ref;
    ref.digest = base::DigestOf(bytes);
    const Statistics* known = nullptr;
    const auto shared =
        FindShared(leaf, source, piece, ref.digest, bytes.size(), &known);
    const Digest digest = ref.digest;
    if (shared.has_value()) ref = *shared;
    // The base may have more boxes of it than this one.
    leaf.changed = !shared.has_value() || !SameChunks(i);
    if (leaf.changed) {
      ref = ChunkRef();
      ref.digest = digest;
    }
    if (!WantsStatistics(source)) continue;
    Statistics& statistics = statistics_[leaf.first_chunk];
    if (known != nullptr) {
      statistics = *known;
    } else if (leaf.changed || leaf.says_more || all_records_) {
      statistics = RunStatistics(source, bytes);
    }
  }
  task_.counters->compared.fetch_add(piece.bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

// Inline values, and the verdict on chunked leaves.
void PartCompare::CompareInline() {
  tbb::parallel_for(
      tbb::blocked_range<std::size_t>(0, leaves_.size(), 1024),
      [this](const tbb::blocked_range<std::size_t>& range) {
        for (std::size_t i = range.begin(); i != range.end(); ++i) {
          const SourceLeaf& source = content_.leaves[i];
          ComparedLeaf& leaf = leaves_[i];
          if (source.form == LeafForm::kPacked) continue;
          if (source.form == LeafForm::kChunked) {
            leaf.changed = !SameChunks(i);
            leaf.rewrite = !leaf.changed && AnyMoved(chunks(i));
            continue;
          }
          leaf.changed = leaf.base == kNoBase || !base_->is_inline(leaf.base) ||
                         base_->value(leaf.base) !=
                             schema::InlineValueDigest(source.value());
        }
      });
}

// A pack of which less than half is still referred to is left behind, and one
// that cannot be read: the unchanged leaves in it are written again. Padding
// and proofs count with their leaf: of two leaves of one size, each is a half.
void PartCompare::LeaveThinPacks() {
  if (base_ == nullptr) return;
  std::map<schema::Block, std::uint64_t> live;
  // Neighbours are in one pack: it is seldom looked for.
  auto last = live.end();
  const auto live_of = [&](const ChunkRef& ref) -> std::uint64_t& {
    const schema::Block name = {schema::BlockKind::kChunk, ref.place,
                                ref.version, ref.n};
    if (last == live.end() || last->first != name) {
      last = live.try_emplace(name, 0).first;
    }
    return last->second;
  };
  const auto kept = [this](std::size_t i) -> const ChunkRef* {
    if (leaves_[i].changed || leaves_[i].chunk_count != 1) return nullptr;
    return &chunks_[leaves_[i].first_chunk].ref;
  };
  // One that fills its block alone leaves nothing thin.
  const auto shares = [](const ChunkRef* ref) {
    return ref != nullptr && ref->length != ref->block_length;
  };
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (const ChunkRef* ref = kept(i); shares(ref)) {
      live_of(*ref) += PackLayout::Taken(ref->length);
    }
  }
  if (live.empty() && !some_lost_) return;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (content_.leaves[i].form != LeafForm::kPacked) continue;
    const ChunkRef* const ref = kept(i);
    leaves_[i].rewrite =
        (shares(ref) && 2 * live_of(*ref) < ref->block_length) ||
        (ref != nullptr && IsLost(*ref));
  }
}

PackLayout::Kind PartCompare::KindOfPacks() const {
  // Of a part among others a reader knows no digest.
  if (task_.among_others) return PackLayout::Kind::kPlain;
  PackLayout layout(PackLayout::Kind::kProved);
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    const StagedContent::Piece& piece = staged_.piece(i);
    if (!piece.run) continue;
    for (std::uint32_t l = piece.leaf; l < piece.leaf_end; ++l) {
      if (IsWritten(leaves_[l])) layout.Add(content_.leaves[l].byte_length);
    }
    if (sink_.bytes() + layout.total() > task_.small.bytes) {
      return PackLayout::Kind::kPlain;
    }
  }
  return PackLayout::Kind::kProved;
}

// Step 4 for packed leaves.
absl::Status PartCompare::WritePacks() {
  std::vector<Pack> packs;
  packs_ = KindOfPacks();
  PackLayout layout(packs_);
  std::uint64_t unchanged = 0;
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    const StagedContent::Piece& piece = staged_.piece(i);
    if (!piece.run) continue;
    for (std::uint32_t l = piece.leaf; l < piece.leaf_end; ++l) {
      const ComparedLeaf& leaf = leaves_[l];
      const std::uint64_t size = content_.leaves[l].byte_length;
      if (!IsWritten(leaf)) {
        unchanged += size;
        continue;
      }
      const PackLayout::Place place = layout.Add(size);
      if (place.pack == packs.size()) packs.emplace_back();
      Pack& pack = packs.back();
      chunks_[leaf.first_chunk].ref.offset =
          static_cast<std::uint32_t>(place.offset);
      pack.bytes = layout.bytes();
      pack.members.emplace_back(i, l);
    }
  }
  task_.counters->unchanged.fetch_add(unchanged, std::memory_order_relaxed);
  FirstError error;
  ForEach(0, packs.size(), [&](std::size_t p) {
    if (error.any()) return;
    const ThreadLimit::Piece piece(task_.limit);
    const absl::Status status = task_.check();
    error.Note(status.ok() ? WritePack(packs[p]) : status);
  });
  return error.status();
}

absl::Status PartCompare::WritePack(const Pack& pack) {
  std::vector<std::byte>& payload = pack_scratch_.local();
  if (payload.size() < pack.bytes) payload.resize(pack.bytes);
  std::size_t filled = 0;
  std::vector<schema::TableSlice> slices;
  slices.reserve(pack.members.size());
  for (const auto& [piece, l] : pack.members) {
    const SourceLeaf& source = content_.leaves[l];
    CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             staged_.Bytes(piece, l, &scratch_.local()));
    const ComparedLeaf& leaf = leaves_[l];
    if (leaf.rewrite && !all_records_ && WantsStatistics(source)) {
      statistics_[leaf.first_chunk] = RunStatistics(source, bytes);
    }
    ChunkRef& ref = chunks_[leaf.first_chunk].ref;
    std::memset(payload.data() + filled, 0, ref.offset - filled);
    std::memcpy(payload.data() + ref.offset, bytes.data(), bytes.size());
    filled = ref.offset + bytes.size();
    ref.length = static_cast<std::uint32_t>(bytes.size());
    ref.block_length = static_cast<std::uint32_t>(pack.bytes);
    schema::TableSlice& slice =
        slices.emplace_back(SliceOf(source, 0, nullptr));
    slice.offset = ref.offset;
    slice.length = ref.length;
    slice.digest = ref.digest;
  }
  std::memset(payload.data() + filled, 0, pack.bytes - filled);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::uint32_t block,
      sink_.Write(Order(pack.members[0].second, 0),
                  std::span(payload).first(pack.bytes), std::move(slices)));
  for (const auto& [piece, l] : pack.members) {
    chunks_[leaves_[l].first_chunk].block = block;
  }
  task_.counters->written.fetch_add(pack.bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

void PartCompare::ReleaseRuns() {
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    if (staged_.piece(i).run) staged_.Release(i);
  }
}

}  // namespace ckptree::internal
