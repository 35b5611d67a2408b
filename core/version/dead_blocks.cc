// SPDX-License-Identifier: Apache-2.0

#include "core/version/dead_blocks.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

namespace ckptree::internal {
namespace {

using schema::Block;
using schema::BlockKind;

void AppendBlocks(const BaseLeaf& leaf, std::vector<Block>* blocks) {
  blocks->push_back({BlockKind::kLeafRecord, leaf.place, leaf.version,
                     leaf.source + 1, leaf.encoded_bytes});
  for (const schema::ChunkRef& ref : leaf.record.chunks) {
    blocks->push_back(
        {BlockKind::kChunk, ref.place, ref.version, ref.n, ref.block_length});
  }
}

void SortUnique(std::vector<Block>* blocks) {
  std::sort(blocks->begin(), blocks->end());
  blocks->erase(std::unique(blocks->begin(), blocks->end()), blocks->end());
}

}  // namespace

std::vector<Block> BlocksOfPart(const BasePart& part) {
  std::vector<Block> blocks;
  for (const auto& leaf : part.leaves) AppendBlocks(*leaf, &blocks);
  SortUnique(&blocks);
  return blocks;
}

std::vector<schema::BlockRun> DeadBlocks(const BasePart* base,
                                         const BasePart& next) {
  if (base == nullptr) return {};
  // Leaves that both share cannot make a block dead, but can keep a pack alive
  // that a changed leaf left.
  std::unordered_set<const BaseLeaf*> kept;
  kept.reserve(next.leaves.size());
  for (const auto& leaf : next.leaves) kept.insert(leaf.get());
  std::vector<Block> candidates;
  for (const auto& leaf : base->leaves) {
    if (!kept.contains(leaf.get())) AppendBlocks(*leaf, &candidates);
  }
  if (candidates.empty()) return {};
  SortUnique(&candidates);

  std::vector<Block> alive;
  for (const auto& leaf : next.leaves) {
    for (const schema::ChunkRef& ref : leaf->record.chunks) {
      const Block block{BlockKind::kChunk, ref.place, ref.version, ref.n};
      if (std::binary_search(candidates.begin(), candidates.end(), block)) {
        alive.push_back(block);
      }
    }
  }
  SortUnique(&alive);
  std::vector<Block> dead;
  std::set_difference(candidates.begin(), candidates.end(), alive.begin(),
                      alive.end(), std::back_inserter(dead));
  return schema::RunsOf(std::move(dead));
}

}  // namespace ckptree::internal
