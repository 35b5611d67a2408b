// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk and per leaf.

#include "core/save/part_compare.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>

#include "base/status_macros.h"
#include "ckptree/dtype.h"
#include "core/array/leaf_statistics.h"
#include "core/process/first_error.h"
#include "schema/dead_list.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

namespace ckptree::internal {
namespace {

using base::Digest;
using schema::ChunkRef;
using schema::LeafRecord;

// A pack is closed when the next leaf would make it larger than this: one read
// of a small leaf reads the whole pack.
constexpr std::uint64_t kPackBytes = 64 << 10;

Statistics StatisticsOf(const SourceLeaf& leaf,
                        std::span<const std::byte> bytes,
                        std::optional<std::int64_t> elements) {
  return ComputeStatistics(leaf.entry.dtype, leaf.entry.packed, bytes,
                           elements);
}

// Index of the leaf's first chunk of box `b`.
std::size_t FirstChunk(const std::vector<schema::Box>& boxes, std::size_t b) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < b; ++i) {
    first += static_cast<std::size_t>(schema::ChunkCount(boxes[i]));
  }
  return first;
}

// The base's reference for this chunk: same box, same bytes.
const ChunkRef* FindShared(const ComparedLeaf& leaf, const SourceLeaf& source,
                           const StagedContent::Piece& piece,
                           const Digest& digest, std::uint64_t bytes,
                           std::size_t* index) {
  if (leaf.base == nullptr || leaf.base->record.is_inline) return nullptr;
  const LeafRecord& record = leaf.base->record;
  std::size_t first = 0;
  if (!source.boxes.empty()) {
    const schema::Box& box = source.boxes[piece.box].box;
    const auto it = std::find(record.boxes.begin(), record.boxes.end(), box);
    if (it == record.boxes.end()) return nullptr;
    first = FirstChunk(record.boxes,
                       static_cast<std::size_t>(it - record.boxes.begin()));
  } else if (!record.boxes.empty()) {
    return nullptr;
  }
  *index = first + static_cast<std::size_t>(piece.cell);
  if (*index >= record.chunks.size()) return nullptr;
  const ChunkRef& ref = record.chunks[*index];
  return ref.digest == digest && ref.length == bytes ? &ref : nullptr;
}

schema::TableSlice SliceOf(const SourceLeaf& leaf, std::uint32_t box,
                           const ChunkGrid::Cell* cell) {
  schema::TableSlice slice;
  slice.path = base::DigestOf(leaf.entry.path);
  if (cell != nullptr) {
    slice.start = cell->start;
    slice.shape = cell->shape;
  } else if (!leaf.boxes.empty()) {
    slice.start = leaf.boxes[box].box.start;
    slice.shape = leaf.boxes[box].box.shape;
  }
  return slice;
}

std::uint64_t Order(std::uint32_t leaf, std::size_t chunk) {
  return (std::uint64_t{leaf} << 32) | chunk;
}

bool SameChunks(const SourceLeaf& source, const ComparedLeaf& leaf) {
  if (leaf.base == nullptr) return false;
  const LeafRecord& record = leaf.base->record;
  if (record.is_inline || record.boxes.size() != source.boxes.size() ||
      record.byte_length != source.byte_length) {
    return false;
  }
  for (std::size_t b = 0; b < source.boxes.size(); ++b) {
    if (!(record.boxes[b] == source.boxes[b].box)) return false;
  }
  return record.chunks == leaf.refs;
}

}  // namespace

PartCompare::PartCompare(const PartTask& task, StagedContent* content,
                         const BasePart* base, BlockSink* sink)
    : task_(task),
      staged_(*content),
      content_(content->content()),
      base_(base),
      sink_(*sink),
      leaves_(content_.leaves.size()) {}

absl::Status PartCompare::Run() {
  Match();
  CKPTREE_RETURN_IF_ERROR(ComparePieces());
  CompareInline();
  LeaveThinPacks();
  CKPTREE_RETURN_IF_ERROR(WritePacks());
  ReleaseRuns();
  return absl::OkStatus();
}

// Finds the base's leaf of the same path, kind, type and shape.
void PartCompare::Match() {
  if (base_ == nullptr) return;
  if (base_->tree == content_.tree.digest) {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      leaves_[i].base = base_->leaves[i].get();
    }
    return;
  }
  std::unordered_map<std::string_view,
                     std::pair<const schema::TreeEntry*, const BaseLeaf*>>
      known;
  std::size_t ordinal = 0;
  for (const schema::TreeEntry& entry : *base_->entries) {
    if (!IsLeaf(entry.kind)) continue;
    known.emplace(entry.path,
                  std::pair(&entry, base_->leaves[ordinal++].get()));
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const schema::TreeEntry& entry = content_.leaves[i].entry;
    const auto it = known.find(entry.path);
    if (it == known.end()) continue;
    const schema::TreeEntry& old = *it->second.first;
    if (old.kind == entry.kind && old.dtype == entry.dtype &&
        old.packed == entry.packed && old.shape == entry.shape) {
      leaves_[i].base = it->second.second;
    }
  }
}

bool PartCompare::WantsStatistics(const SourceLeaf& leaf) const {
  return task_.statistics && leaf.entry.kind == EntryKind::kArray;
}

// Step 3 for chunked leaves (and step 4 at once), step 3 for runs.
absl::Status PartCompare::ComparePieces() {
  PrepareRefs();
  FirstError error;
  tbb::parallel_for(
      tbb::blocked_range<std::size_t>(0, staged_.piece_count(), 1),
      [this, &error](const tbb::blocked_range<std::size_t>& range) {
        for (std::size_t i = range.begin(); i != range.end(); ++i) {
          if (error.any()) return;
          absl::Status status = task_.check();
          if (status.ok()) {
            staged_.Take(i);
            status = staged_.piece(i).run ? CompareRun(i) : CompareChunk(i);
          }
          error.Note(status);
        }
      },
      tbb::simple_partitioner());
  return error.status();
}

void PartCompare::PrepareRefs() {
  tbb::parallel_for(
      tbb::blocked_range<std::size_t>(0, leaves_.size(), 1024),
      [this](const tbb::blocked_range<std::size_t>& range) {
        for (std::size_t i = range.begin(); i != range.end(); ++i) {
          const SourceLeaf& source = content_.leaves[i];
          std::size_t count = 0;
          if (source.form == LeafForm::kPacked) {
            count = 1;
          } else if (source.form == LeafForm::kChunked) {
            for (std::uint32_t b = 0; b < source.boxes.size(); ++b) {
              count += static_cast<std::size_t>(
                  staged_.grid(static_cast<std::uint32_t>(i), b).count());
            }
          }
          leaves_[i].refs.resize(count);
          leaves_[i].block.assign(count, kNotWritten);
          if (WantsStatistics(source)) leaves_[i].statistics.resize(count);
        }
      });
  // Values cut linearly have no boxes: their pieces say how many chunks.
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    const StagedContent::Piece& piece = staged_.piece(i);
    if (piece.run || !content_.leaves[piece.leaf].boxes.empty()) continue;
    ComparedLeaf& leaf = leaves_[piece.leaf];
    leaf.refs.resize(leaf.refs.size() + 1);
    leaf.block.push_back(kNotWritten);
  }
}

absl::Status PartCompare::CompareChunk(std::size_t index) {
  const StagedContent::Piece& piece = staged_.piece(index);
  const SourceLeaf& source = content_.leaves[piece.leaf];
  ComparedLeaf& leaf = leaves_[piece.leaf];
  std::size_t at = static_cast<std::size_t>(piece.cell);
  for (std::uint32_t b = 0; b < piece.box; ++b) {
    at += static_cast<std::size_t>(staged_.grid(piece.leaf, b).count());
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                           staged_.Bytes(index, piece.leaf, &scratch_.local()));
  ChunkRef& ref = leaf.refs[at];
  ref.digest = base::DigestOf(bytes);
  task_.counters->compared.fetch_add(bytes.size(), std::memory_order_relaxed);
  std::size_t old = 0;
  if (const ChunkRef* shared =
          FindShared(leaf, source, piece, ref.digest, bytes.size(), &old)) {
    ref = *shared;
    if (!leaf.statistics.empty()) {
      const std::vector<Statistics>& known = leaf.base->record.statistics;
      if (old < known.size()) {
        leaf.statistics[at] = known[old];
      } else {
        leaf.statistics[at] = StatisticsOf(source, bytes, Elements(piece));
      }
    }
    task_.counters->unchanged.fetch_add(bytes.size(),
                                        std::memory_order_relaxed);
  } else {
    if (!leaf.statistics.empty()) {
      leaf.statistics[at] = StatisticsOf(source, bytes, Elements(piece));
    }
    CKPTREE_RETURN_IF_ERROR(WriteChunk(piece, source, at, bytes, &leaf));
  }
  staged_.Release(index);
  return absl::OkStatus();
}

std::optional<std::int64_t> PartCompare::Elements(
    const StagedContent::Piece& piece) const {
  if (content_.leaves[piece.leaf].boxes.empty()) return std::nullopt;
  return staged_.grid(piece.leaf, piece.box).cell_elements(piece.cell);
}

absl::Status PartCompare::WriteChunk(const StagedContent::Piece& piece,
                                     const SourceLeaf& source, std::size_t at,
                                     std::span<const std::byte> bytes,
                                     ComparedLeaf* leaf) {
  ChunkRef& ref = leaf->refs[at];
  const auto size = static_cast<std::uint32_t>(bytes.size());
  ref.length = ref.block_length = size;
  std::vector<schema::TableSlice> slices;
  if (source.boxes.empty()) {
    slices.push_back(SliceOf(source, 0, nullptr));
  } else {
    const ChunkGrid::Cell cell =
        staged_.grid(piece.leaf, piece.box).cell(piece.cell);
    slices.push_back(SliceOf(source, piece.box, &cell));
  }
  slices[0].length = size;
  slices[0].digest = ref.digest;
  CKPTREE_ASSIGN_OR_RETURN(
      leaf->block[at],
      sink_.Write(Order(piece.leaf, at), bytes, std::move(slices)));
  task_.counters->written.fetch_add(size, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status PartCompare::CompareRun(std::size_t index) {
  const StagedContent::Piece& piece = staged_.piece(index);
  for (std::uint32_t i = piece.leaf; i < piece.leaf_end; ++i) {
    const SourceLeaf& source = content_.leaves[i];
    ComparedLeaf& leaf = leaves_[i];
    CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             staged_.Bytes(index, i, &scratch_.local()));
    ChunkRef& ref = leaf.refs[0];
    ref.digest = base::DigestOf(bytes);
    std::size_t old = 0;
    const ChunkRef* shared =
        FindShared(leaf, source, piece, ref.digest, bytes.size(), &old);
    if (shared != nullptr) {
      ref = *shared;
      if (!leaf.statistics.empty() && !leaf.base->record.statistics.empty()) {
        leaf.statistics[0] = leaf.base->record.statistics[0];
        continue;
      }
    } else {
      leaf.changed = true;
    }
    if (!leaf.statistics.empty()) {
      leaf.statistics[0] =
          StatisticsOf(source, bytes, ElementCount(source.boxes[0].box.shape));
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
            leaf.changed = !SameChunks(source, leaf);
            continue;
          }
          leaf.changed = leaf.base == nullptr || !leaf.base->record.is_inline ||
                         leaf.base->record.inline_value != source.value;
          if (!WantsStatistics(source)) continue;
          if (!leaf.changed && !leaf.base->record.statistics.empty()) {
            leaf.statistics = leaf.base->record.statistics;
            continue;
          }
          leaf.statistics.assign(
              1, StatisticsOf(source, std::as_bytes(std::span(source.value)),
                              ElementCount(source.entry.shape)));
        }
      });
}

// A pack of which less than half is still referred to is left behind: the
// unchanged leaves in it are written again.
void PartCompare::LeaveThinPacks() {
  if (base_ == nullptr) return;
  std::map<schema::Block, std::uint64_t> live;
  const auto name = [](const ChunkRef& ref) {
    return schema::Block{schema::BlockKind::kChunk, ref.place, ref.version,
                         ref.n};
  };
  const auto kept = [](const ComparedLeaf& leaf) {
    return !leaf.changed && leaf.refs.size() == 1 &&
           leaf.refs[0].length != leaf.refs[0].block_length;
  };
  for (const ComparedLeaf& leaf : leaves_) {
    if (kept(leaf)) live[name(leaf.refs[0])] += leaf.refs[0].length;
  }
  if (live.empty()) return;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    ComparedLeaf& leaf = leaves_[i];
    if (content_.leaves[i].form == LeafForm::kPacked && kept(leaf) &&
        2 * live[name(leaf.refs[0])] < leaf.refs[0].block_length) {
      leaf.rewrite = true;
    }
  }
}

// Step 4 for packed leaves.
absl::Status PartCompare::WritePacks() {
  std::vector<Pack> packs;
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    const StagedContent::Piece& piece = staged_.piece(i);
    if (!piece.run) continue;
    for (std::uint32_t l = piece.leaf; l < piece.leaf_end; ++l) {
      ComparedLeaf& leaf = leaves_[l];
      const std::uint64_t size = content_.leaves[l].byte_length;
      if (!leaf.changed && !leaf.rewrite) {
        task_.counters->unchanged.fetch_add(size, std::memory_order_relaxed);
        continue;
      }
      // Values of a cache line and more start on one: views need no copy.
      const std::uint64_t align = size >= 512 ? 64 : 16;
      if (packs.empty() || packs.back().bytes + align + size > kPackBytes) {
        packs.emplace_back();
      }
      Pack& pack = packs.back();
      pack.bytes = (pack.bytes + align - 1) / align * align;
      leaf.refs[0].offset = static_cast<std::uint32_t>(pack.bytes);
      pack.bytes += size;
      pack.members.emplace_back(i, l);
    }
  }
  FirstError error;
  tbb::parallel_for(std::size_t{0}, packs.size(), [&](std::size_t p) {
    if (error.any()) return;
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
    ChunkRef& ref = leaves_[l].refs[0];
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
  CKPTREE_ASSIGN_OR_RETURN(
      const std::uint32_t block,
      sink_.Write(Order(pack.members[0].second, 0),
                  std::span(payload).first(pack.bytes), std::move(slices)));
  for (const auto& [piece, l] : pack.members) leaves_[l].block[0] = block;
  task_.counters->written.fetch_add(pack.bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

void PartCompare::ReleaseRuns() {
  for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
    if (staged_.piece(i).run) staged_.Release(i);
  }
}

}  // namespace ckptree::internal
