// SPDX-License-Identifier: Apache-2.0

// The four key spaces of a store and the row kinds of `records`.

#ifndef CKPTREE_SCHEMA_SPACES_H_
#define CKPTREE_SCHEMA_SPACES_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace ckptree::schema {

// A key space: one RocksDB column family.
//
// ON DISK: the numbers are part of segment rows and block references. Never
// renumber or reuse one.
enum class Space : std::uint8_t {
  kRecords = 0,  // Everything small that names something; written by batches.
  kSmall = 1,    // Blocks of saves too small for segments; ride in the batch.
  kLeaves = 2,   // Leaf records of larger saves; ingested segments only.
  kChunks = 3,   // Array bytes; ingested segments only.
};

inline constexpr int kSpaceCount = 4;

// The column family of each space, indexed by its number.
inline constexpr std::array<std::string_view, kSpaceCount> kSpaceNames = {
    "records", "small", "leaves", "chunks"};

constexpr std::string_view NameOf(Space space) {
  return kSpaceNames[static_cast<std::size_t>(space)];
}

// The first byte of every key in `records`.
//
// ON DISK: never renumber or reuse one.
enum class Row : std::uint8_t {
  kStore = 0x00,     // The store itself; the first record ever written.
  kStep = 0x01,      // branch, step -> StepRecord
  kStepMeta = 0x02,  // version -> StepMeta
  kTree = 0x03,      // digest -> TreeRoot
  kTreePage = 0x04,  // digest -> TreePage
  kDead = 0x05,      // version -> DeadList
  kSegment = 0x06,   // version, part, space, builder -> SegmentRow
  kCommit = 0x07,    // ordinal -> (of engines before the journal)
  kRemoved = 0x08,   // version -> StepRecord
  kBranch = 0x09,    // branch -> BranchRecord
  kTag = 0x0a,       // name -> TagRecord
  kPin = 0x0b,       // version -> PinRecord
  kSettings = 0x0c,  // branch -> BranchSettings
  kFar = 0x0d,       // as of a segment -> FarSegment
};

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_SPACES_H_
