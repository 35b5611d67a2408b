// SPDX-License-Identifier: Apache-2.0

// A segment's row, its first and last record, and a small save's header.

#ifndef CKPTREE_SCHEMA_SEGMENT_RECORD_H_
#define CKPTREE_SCHEMA_SEGMENT_RECORD_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "base/mapped_vector.h"
#include "schema/leaf_record.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// Sequences [first, first + count) of a segment.
struct DeadRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const DeadRun&, const DeadRun&) = default;
};

// `records` row of a segment; its key says version, part, space and builder.
// Blocks have the sequences 1 .. block_count for chunks; for leaf records any
// ascending ones between first_n and last_n.
struct SegmentRow {
  std::uint32_t first_n = 0;  // Of its blocks, without header and table.
  std::uint32_t last_n = 0;
  std::uint32_t block_count = 0;
  std::uint64_t bytes = 0;  // Of the blocks' values.

  // Blocks that nothing refers to any more; their bytes are there until the
  // segment is rewritten. Ascending, never all.
  std::vector<DeadRun> dead = {};
  std::uint64_t dead_bytes = 0;
  std::uint64_t died_at = 0;  // The newest version when the last of them died.
  bool damaged = false;       // Collection leaves its bytes alone.

  std::uint64_t dead_count() const;
  bool IsDead(std::uint32_t sequence) const;

  friend bool operator==(const SegmentRow&, const SegmentRow&) = default;
};

// First record of a segment: what it is, should `records` be lost.
struct SegmentHeader {
  std::string uuid;  // Of the store.
  std::uint64_t incarnation = 0;
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  Space space = Space::kChunks;
  std::uint8_t builder = 0;
  std::string attempt;  // Name of the staging folder it was built in.

  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

// One piece of a chunk: a whole one, or one leaf's slice of a pack.
struct TableSlice {
  base::Digest path;                // DigestOf(encoded path)
  std::vector<std::int64_t> start;  // Of the box; empty for values that are
  std::vector<std::int64_t> shape;  // no arrays.
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  base::Digest digest;

  friend bool operator==(const TableSlice&, const TableSlice&) = default;
};

struct TableEntry {
  std::uint32_t n = 0;
  std::vector<TableSlice> slices;  // Leaf records: one, digest of the value.

  friend bool operator==(const TableEntry&, const TableEntry&) = default;
};

// Last record of a segment: what lies where.
struct SegmentTable {
  std::vector<TableEntry> entries;  // Ascending by n.

  friend bool operator==(const SegmentTable&, const SegmentTable&) = default;
};

// A table that grows by an entry at a time: its columns, of some 50 bytes a
// slice, not its entries.
class SegmentTableBuilder {
 public:
  // Entries come ascending by n.
  void Add(std::uint32_t n, std::span<const TableSlice> slices);

  // What EncodeSegmentTable() makes of these entries. Takes them: of a million
  // they are 50 MB, and what comes of them is large as well.
  std::string Encode() &&;

 private:
  std::uint32_t last_ = 0;
  base::MappedVector<std::uint32_t> n_;  // Less the one before.
  base::MappedVector<std::uint32_t> slices_;
  base::MappedVector<char> paths_;
  base::MappedVector<char> digests_;
  base::MappedVector<std::uint32_t> length_;
  base::MappedVector<std::uint32_t> offset_;
  base::MappedVector<std::uint32_t> rank_;
  base::MappedVector<std::uint64_t> dims_;
};

// `small` record (version, part, kHeader, 0): open checks that none is lost.
struct SmallHeader {
  std::uint32_t block_count = 0;
  base::Digest digest;  // Over key and value of every block, in key order.

  friend bool operator==(const SmallHeader&, const SmallHeader&) = default;
};

// Marks the blocks as dead; kDataLoss where one of them is dead already or
// belongs to another segment. The last one may die: such a row is to be
// deleted.
absl::Status MarkDead(std::uint32_t first, std::uint32_t count,
                      std::uint64_t bytes, SegmentRow* row);

std::string EncodeSegmentRow(const SegmentRow& row);
absl::StatusOr<SegmentRow> DecodeSegmentRow(std::string_view bytes);
std::string EncodeSegmentHeader(const SegmentHeader& header);
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view bytes);
std::string EncodeSegmentTable(const SegmentTable& table);
absl::StatusOr<SegmentTable> DecodeSegmentTable(std::string_view bytes);
std::string EncodeSmallHeader(const SmallHeader& header);
absl::StatusOr<SmallHeader> DecodeSmallHeader(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_SEGMENT_RECORD_H_
