// The blocks of its base that a version no longer refers to.

#ifndef CKPTREE_SCHEMA_DEAD_LIST_H_
#define CKPTREE_SCHEMA_DEAD_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// Blocks n in [first_n, first_n + count) of one kind, version and place. The
// part is that of the list: a block keeps its part wherever it is referred to.
struct BlockRun {
  BlockKind kind = BlockKind::kChunk;  // kLeafRecord or kChunk.
  Space place = Space::kChunks;  // kSmall, or kLeaves / kChunks by kind.
  std::uint64_t version = 0;
  std::uint32_t first_n = 0;
  std::uint32_t count = 0;

  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

// One block; orders as runs do.
struct Block {
  BlockKind kind = BlockKind::kChunk;
  Space place = Space::kChunks;
  std::uint64_t version = 0;
  std::uint32_t n = 0;

  friend auto operator<=>(const Block&, const Block&) = default;
};

// Sorts, drops duplicates and makes the fewest runs.
std::vector<BlockRun> RunsOf(std::vector<Block> blocks);
std::vector<Block> BlocksOf(const std::vector<BlockRun>& runs);

struct DeadPart {
  std::uint16_t part = 0;
  std::vector<BlockRun> runs;  // As RunsOf makes them; not empty.

  friend bool operator==(const DeadPart&, const DeadPart&) = default;
};

struct DeadList {
  std::uint32_t line = 0;
  std::uint64_t prev = 0;       // 0: the first of its chain.
  std::vector<DeadPart> parts;  // Ascending by number.

  friend bool operator==(const DeadList&, const DeadList&) = default;
};

std::string EncodeDeadList(const DeadList& list);
absl::StatusOr<DeadList> DecodeDeadList(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_DEAD_LIST_H_
