// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/version/compact_part.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace ckptree::internal {
namespace {

using schema::Block;
using schema::BlockKind;
using schema::MapRun;

constexpr std::uint32_t kNoIndex = 0xffffffff;

bool RecordsBefore(const MapRun& a, const MapRun& b) {
  return std::tie(a.place, a.version, a.source) <
         std::tie(b.place, b.version, b.source);
}

Block BlockOfRecord(const MapRun& run, std::uint32_t index,
                    std::uint32_t bytes) {
  return {BlockKind::kLeafRecord, run.place, run.version,
          run.source + index + 1, bytes};
}

void AppendChunkBlocks(const schema::LeafRecord& record,
                       std::vector<Block>* blocks) {
  for (const schema::ChunkRef& ref : record.chunks) {
    blocks->push_back(
        {BlockKind::kChunk, ref.place, ref.version, ref.n, ref.block_length});
  }
}

void MakeSet(std::vector<Block>* blocks) {
  std::sort(blocks->begin(), blocks->end());
  blocks->erase(std::unique(blocks->begin(), blocks->end()), blocks->end());
}

// Calls `fn` with each run of `map` and the index in it of each record that
// `other` does not have.
template <typename Fn>
void ForEachMissing(const schema::LeafMap& map, const schema::LeafMap& other,
                    Fn fn) {
  std::vector<MapRun> there = other.runs();
  std::sort(there.begin(), there.end(), RecordsBefore);
  for (const MapRun& run : map.runs()) {
    // The last that begins at or before the run, and those after it.
    auto it = std::upper_bound(there.begin(), there.end(), run, RecordsBefore);
    if (it != there.begin() && std::prev(it)->place == run.place &&
        std::prev(it)->version == run.version) {
      --it;
    }
    const std::uint64_t end = std::uint64_t{run.source} + run.count;
    std::uint64_t at = run.source;
    for (; it != there.end() && it->place == run.place &&
           it->version == run.version && it->source < end;
         ++it) {
      for (; at < it->source; ++at) {
        fn(run, static_cast<std::uint32_t>(at - run.source));
      }
      at = std::max(at, std::uint64_t{it->source} + it->count);
    }
    for (; at < end; ++at) {
      fn(run, static_cast<std::uint32_t>(at - run.source));
    }
  }
}

template <typename T>
std::size_t HeldBytes(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

}  // namespace

bool CompactPart::is_inline(std::size_t ordinal) const {
  return leaves_[ordinal].block == kInline;
}

const schema::LeafRecord* CompactPart::record(std::size_t ordinal) const {
  const Leaf& leaf = leaves_[ordinal];
  return leaf.block == kHasRecord ? records_[leaf.offset].get() : nullptr;
}

schema::ChunkRef CompactPart::Reference(std::size_t ordinal,
                                        const base::Digest& digest) const {
  const Leaf& leaf = leaves_[ordinal];
  const PackBlock& block = blocks_[leaf.block];
  schema::ChunkRef ref;
  ref.place = block.place;
  ref.version = block.version;
  ref.part = block.part;
  ref.n = block.n;
  ref.offset = leaf.offset;
  ref.length = leaf.length;
  ref.block_length = block.bytes;
  ref.digest = digest;
  return ref;
}

std::size_t CompactPart::MemoryBytes() const {
  std::size_t bytes = sizeof(*this) + HeldBytes(leaves_) + HeldBytes(since_) +
                      HeldBytes(blocks_) + HeldBytes(records_) +
                      HeldBytes(nonfinite_) + unknown_.capacity() / 8 +
                      HeldBytes(map_.runs());
  bytes += tree_->root.size() + HeldBytes(tree_->pages);
  for (const auto& [digest, page] : tree_->pages) bytes += page.capacity();
  return bytes;
}

bool IsCompact(bool is_inline, bool whole, std::uint64_t byte_length,
               std::span<const schema::ChunkRef> chunks) {
  if (is_inline) return true;
  if (!whole || chunks.size() != 1) return false;
  return chunks[0].length == byte_length;
}

CompactPartBuilder::CompactPartBuilder(const CompactPart* from,
                                       std::size_t leaves)
    : from_(from), part_(std::make_shared<CompactPart>()) {
  part_->leaves_.reserve(leaves);
  if (from_ == nullptr) return;
  since_of_.assign(from_->since_.size(), kNoIndex);
  block_of_.assign(from_->blocks_.size(), kNoIndex);
}

std::uint32_t CompactPartBuilder::SinceIndex(const Since& since) {
  std::vector<Since>& all = part_->since_;
  if (last_since_ < all.size() && all[last_since_] == since) {
    return last_since_;
  }
  const auto [it, is_new] =
      known_since_.try_emplace(since, static_cast<std::uint32_t>(all.size()));
  if (is_new) all.push_back(since);
  return last_since_ = it->second;
}

std::uint32_t CompactPartBuilder::BlockIndex(
    const CompactPart::PackBlock& block) {
  std::vector<CompactPart::PackBlock>& all = part_->blocks_;
  if (last_block_ < all.size() && all[last_block_].block() == block.block()) {
    return last_block_;
  }
  const auto [it, is_new] = known_blocks_.try_emplace(
      block.block(), static_cast<std::uint32_t>(all.size()));
  if (is_new) all.push_back(block);
  return last_block_ = it->second;
}

void CompactPartBuilder::Keep(std::uint32_t ordinal, const MapRun& at) {
  CompactPart::Leaf leaf = from_->leaves_[ordinal];
  std::uint32_t& since = since_of_[leaf.since];
  if (since == kNoIndex) since = SinceIndex(from_->since_[leaf.since]);
  leaf.since = since;
  if (leaf.block == CompactPart::kHasRecord) {
    const auto& record = from_->records_[leaf.offset];
    leaf.offset = static_cast<std::uint32_t>(part_->records_.size());
    part_->logical_bytes_ += record->byte_length;
    part_->records_.push_back(record);
  } else {
    if (leaf.block != CompactPart::kInline) {
      std::uint32_t& block = block_of_[leaf.block];
      if (block == kNoIndex) block = BlockIndex(from_->blocks_[leaf.block]);
      leaf.block = block;
    }
    part_->logical_bytes_ += leaf.length;
  }
  const auto& known = from_->nonfinite_;
  if (!known.empty()) {
    const auto found = std::lower_bound(
        known.begin(), known.end(), ordinal,
        [](const CompactPart::Nonfinite& of, std::uint32_t at_least) {
          return of.ordinal < at_least;
        });
    if (found != known.end() && found->ordinal == ordinal) {
      AddNonfinite(found->nan, found->inf);
    }
  }
  if (from_->is_unknown(ordinal)) AddUnknown();
  Append(leaf, at);
}

void CompactPartBuilder::Add(NewLeaf added) {
  CompactPart::Leaf leaf;
  leaf.value = added.value;
  leaf.since = SinceIndex(added.since);
  leaf.record_bytes = added.record_bytes;
  if (added.record != nullptr) {
    leaf.block = CompactPart::kHasRecord;
    leaf.offset = static_cast<std::uint32_t>(part_->records_.size());
    part_->records_.push_back(std::move(added.record));
  } else {
    leaf.length = static_cast<std::uint32_t>(added.byte_length);
    if (added.chunk == nullptr) {
      leaf.block = CompactPart::kInline;
    } else {
      const schema::ChunkRef& ref = *added.chunk;
      leaf.block = BlockIndex(
          {ref.place, ref.part, ref.n, ref.version, ref.block_length});
      leaf.offset = ref.offset;
    }
  }
  if (added.nan + added.inf > 0) AddNonfinite(added.nan, added.inf);
  if (added.unknown) AddUnknown();
  part_->logical_bytes_ += added.byte_length;
  Append(leaf, added.at);
}

void CompactPartBuilder::AddNonfinite(std::uint64_t nan, std::uint64_t inf) {
  const auto ordinal = static_cast<std::uint32_t>(part_->leaves_.size());
  part_->nonfinite_.push_back({ordinal, nan, inf});
}

void CompactPartBuilder::AddUnknown() {
  part_->unknown_.resize(part_->leaves_.size());
  part_->unknown_.push_back(true);
}

void CompactPartBuilder::Append(const CompactPart::Leaf& leaf,
                                const MapRun& at) {
  part_->all_record_bytes_ += leaf.record_bytes;
  part_->map_.Append(at.place, at.version, at.source);
  part_->leaves_.push_back(leaf);
}

std::shared_ptr<const CompactPart> CompactPartBuilder::Finish(
    std::shared_ptr<const schema::EncodedTree> tree, std::uint64_t map_bytes) {
  part_->tree_ = std::move(tree);
  part_->map_bytes_ = map_bytes;
  part_->since_.shrink_to_fit();
  part_->blocks_.shrink_to_fit();
  part_->records_.shrink_to_fit();
  part_->nonfinite_.shrink_to_fit();
  part_->unknown_.shrink_to_fit();
  return std::move(part_);
}

std::vector<Block> BlocksOfPart(const CompactPart& part) {
  std::vector<Block> blocks;
  blocks.reserve(part.size() + part.blocks().size());
  for (const MapRun& run : part.map().runs()) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      blocks.push_back(BlockOfRecord(run, i, part.record_bytes(run.first + i)));
    }
  }
  for (const CompactPart::PackBlock& block : part.blocks()) {
    blocks.push_back(block.block());
  }
  for (const auto& record : part.records()) AppendChunkBlocks(*record, &blocks);
  MakeSet(&blocks);
  return blocks;
}

std::vector<schema::BlockRun> DeadBlocks(const CompactPart* base,
                                         const CompactPart& next) {
  if (base == nullptr) return {};
  std::vector<Block> dead;
  // Chunks that may be dead: of leaves whose record is gone, and packs.
  std::vector<Block> candidates;
  ForEachMissing(
      base->map(), next.map(), [&](const MapRun& run, std::uint32_t index) {
        const std::uint32_t ordinal = run.first + index;
        dead.push_back(BlockOfRecord(run, index, base->record_bytes(ordinal)));
        if (const auto* record = base->record(ordinal)) {
          AppendChunkBlocks(*record, &candidates);
        }
      });
  if (dead.empty()) return {};
  for (const CompactPart::PackBlock& block : base->blocks()) {
    candidates.push_back(block.block());
  }
  MakeSet(&candidates);
  std::vector<Block> alive;
  const auto note = [&](const Block& block) {
    if (std::binary_search(candidates.begin(), candidates.end(), block)) {
      alive.push_back(block);
    }
  };
  for (const CompactPart::PackBlock& block : next.blocks()) {
    note(block.block());
  }
  for (const auto& record : next.records()) {
    for (const schema::ChunkRef& ref : record->chunks) {
      note({BlockKind::kChunk, ref.place, ref.version, ref.n});
    }
  }
  MakeSet(&alive);
  std::set_difference(candidates.begin(), candidates.end(), alive.begin(),
                      alive.end(), std::back_inserter(dead));
  return schema::RunsOf(std::move(dead));
}

}  // namespace ckptree::internal
