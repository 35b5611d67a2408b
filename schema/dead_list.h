// SPDX-License-Identifier: Apache-2.0

// The blocks of its base that a version no longer refers to.

#ifndef CKPTREE_SCHEMA_DEAD_LIST_H_
#define CKPTREE_SCHEMA_DEAD_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// Blocks n in [first_n, first_n + count) of one kind, version and place. The
// part is that of the list: a block keeps its part wherever it is referred to.
struct BlockRun {
  BlockKind kind = BlockKind::kChunk;  // kLeafRecord or kChunk.
  Space place = Space::kChunks;        // kSmall, or kLeaves / kChunks by kind.
  std::uint64_t version = 0;
  std::uint32_t first_n = 0;
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;  // Of all their values, as stored.

  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

// One block; orders as runs do. Its size is no part of its name.
struct Block {
  BlockKind kind = BlockKind::kChunk;
  Space place = Space::kChunks;
  std::uint64_t version = 0;
  std::uint32_t n = 0;
  std::uint32_t bytes = 0;  // Of its value, as stored.

  friend bool operator==(const Block& a, const Block& b) {
    return a.Name() == b.Name();
  }
  friend auto operator<=>(const Block& a, const Block& b) {
    return a.Name() <=> b.Name();
  }

 private:
  std::tuple<BlockKind, Space, std::uint64_t, std::uint32_t> Name() const {
    return {kind, place, version, n};
  }
};

// Sorts, drops duplicates and makes the fewest runs.
std::vector<BlockRun> RunsOf(std::vector<Block> blocks);

// The fewest runs of all blocks of both, which have none in common.
std::vector<BlockRun> MergeRuns(std::vector<BlockRun> a,
                                const std::vector<BlockRun>& b);

struct DeadPart {
  std::uint16_t part = 0;
  std::vector<BlockRun> runs;  // As RunsOf makes them; not empty.

  friend bool operator==(const DeadPart&, const DeadPart&) = default;
};

struct DeadList {
  std::uint32_t branch = 0;
  std::uint64_t prev = 0;       // 0: the first of its chain.
  std::vector<DeadPart> parts;  // Ascending by number.

  friend bool operator==(const DeadList&, const DeadList&) = default;
};

std::string EncodeDeadList(const DeadList& list);
absl::StatusOr<DeadList> DecodeDeadList(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_DEAD_LIST_H_
