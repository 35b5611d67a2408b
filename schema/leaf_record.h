// SPDX-License-Identifier: Apache-2.0

// What a leaf was at the version that last changed it.

#ifndef CKPTREE_SCHEMA_LEAF_RECORD_H_
#define CKPTREE_SCHEMA_LEAF_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "ckptree/statistics.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// Where a run of a leaf's bytes lies: `length` bytes at `offset` of the payload
// of block (place, version, part, n). How the payload stands in its file, plain
// or coded, is not said here: it may change while the reference does not.
// `digest` is of the bytes of this leaf alone, though a pack holds several
// leaves.
struct ChunkRef {
  Space place = Space::kChunks;  // kChunks or kSmall.
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  std::uint32_t n = 0;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  // Payload bytes of the whole block: `length`, or those of the pack. A save
  // leaves a pack behind when less than half of it is still referred to.
  std::uint32_t block_length = 0;
  base::Digest digest;

  friend bool operator==(const ChunkRef&, const ChunkRef&) = default;
};

// A box of the leaf's array that this part holds, cut into a grid of chunks:
// chunk (i, j, ...) covers [start + i * chunk_shape, ...), clipped to the box.
// Chunks are in row-major order of the grid; each holds its elements row-major.
struct Box {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk_shape;  // Every entry >= 1.

  friend bool operator==(const Box&, const Box&) = default;
};

// How many chunks `box` has; 0 where a dimension is 0. REQUIRES: equal ranks.
std::int64_t ChunkCount(const Box& box);

struct LeafRecord {
  // The version and step at which the value last changed: what blame reads.
  // Copied when a save writes the record again without a change.
  std::uint64_t since_version = 0;
  std::int64_t since_step = 0;

  // Bytes of the value (raw). For arrays: of the boxes of this part together.
  std::uint64_t byte_length = 0;

  // The whole value where is_inline; then there are no boxes and no chunks.
  bool is_inline = false;
  std::string inline_value;

  // Arrays: one or more boxes, chunks in their order. Other values: no boxes,
  // the chunks follow each other.
  std::vector<Box> boxes;
  std::vector<ChunkRef> chunks;

  // Empty, or one for each chunk (one in all for an inline array).
  std::vector<Statistics> statistics;

  friend bool operator==(const LeafRecord&, const LeafRecord&) = default;
};

// Digest over the value alone (inline bytes or chunk digests, boxes, length):
// equal values chunked alike have equal digests. Used for the step digest.
base::Digest ValueDigest(const LeafRecord& record);
// Of a value in its record; of one chunk of these raw bytes, `box` null where
// it is no array.
base::Digest InlineValueDigest(std::string_view value);
base::Digest ChunkValueDigest(std::uint64_t byte_length, const Box* box,
                              const base::Digest& chunk);

// kDataLoss with what DecodeLeafRecord() would find in the record, but that it
// is too long: for the one that writes what nobody could read. REQUIRES: the
// lists of a box are of one length, the same for all boxes.
absl::Status CheckLeafRecord(const LeafRecord& record);

// Appends the enveloped record to `out`.
void EncodeLeafRecord(const LeafRecord& record, std::string* out);

// Checks everything that can be checked without the tree: sizes, ranks, counts,
// places, overflow. kDataLoss with the fault.
absl::StatusOr<LeafRecord> DecodeLeafRecord(std::string_view bytes);
// The same into memory that is used again: for the one that decodes many and
// keeps none. After an error `record` is of no use.
absl::Status DecodeLeafRecordInto(std::string_view bytes, LeafRecord* record);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_LEAF_RECORD_H_
