// SPDX-License-Identifier: Apache-2.0

// Every key of every space. No other file builds or takes apart key bytes.

#ifndef CKPTREE_SCHEMA_KEYS_H_
#define CKPTREE_SCHEMA_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// All integers in keys are big-endian and of fixed width, so that byte order is
// numeric order. Steps are signed: their sign bit is flipped.

std::string StoreKey();
std::string StepKey(std::uint32_t branch, std::int64_t step);
std::string StepMetaKey(std::uint64_t version);
std::string TreeKey(const base::Digest& digest);
std::string TreePageKey(const base::Digest& digest);
std::string DeadKey(std::uint64_t version);
std::string SegmentKey(std::uint64_t version, std::uint16_t part, Space space,
                       std::uint8_t builder);
std::string CommitKey(std::uint64_t ordinal);
std::string RemovedKey(std::uint64_t version);
std::string BranchKey(std::uint32_t branch);
std::string TagKey(std::string_view name);
std::string PinKey(std::uint64_t version);
std::string SettingsKey(std::uint32_t branch);

struct StepKeyFields {
  std::uint32_t branch;
  std::int64_t step;
};
struct SegmentKeyFields {
  std::uint64_t version;
  std::uint16_t part;
  Space space;
  std::uint8_t builder;
};
std::string SegmentKey(const SegmentKeyFields& segment);
// Of the row that says that a segment of this directory is elsewhere.
std::string FarKey(const SegmentKeyFields& segment);
// Each decoder accepts exactly what its encoder makes.
std::optional<StepKeyFields> DecodeStepKey(std::string_view key);
std::optional<SegmentKeyFields> DecodeSegmentKey(std::string_view key);
std::optional<SegmentKeyFields> DecodeFarKey(std::string_view key);
// Keys whose only field is a version or ordinal.
std::optional<std::uint64_t> DecodeVersionKey(Row row, std::string_view key);
std::optional<std::uint32_t> DecodeBranchKey(std::string_view key);
std::optional<std::uint32_t> DecodeSettingsKey(std::string_view key);
std::optional<base::Digest> DecodeDigestKey(Row row, std::string_view key);
std::optional<std::string> DecodeTagKey(std::string_view key);

// Where a block is. In `leaves` and `chunks` the key is (version, part, n); in
// `small` it is (version, part, kind, n).
enum class BlockKind : std::uint8_t {  // ON DISK: never renumber.
  kHeader = 0,                         // Of a small save; n = 0.
  kLeafRecord = 1,
  kChunk = 2,
};

// n = builder (8 bits), sequence (24 bits). A segment's first record has
// sequence 0 (its header), its last kTableSequence (its table); blocks lie
// between. A leaf record's sequence is 1 + its ordinal in its version's tree.
inline constexpr std::uint32_t kHeaderSequence = 0;
inline constexpr std::uint32_t kTableSequence = 0xffffff;
inline constexpr std::uint32_t kMaxSequence = kTableSequence - 1;
constexpr std::uint32_t BlockNumber(std::uint8_t builder,
                                    std::uint32_t sequence) {
  return (std::uint32_t{builder} << 24) | sequence;
}
constexpr std::uint8_t BuilderOf(std::uint32_t n) {
  return static_cast<std::uint8_t>(n >> 24);
}
constexpr std::uint32_t SequenceOf(std::uint32_t n) { return n & 0xffffff; }

std::string BlockKey(std::uint64_t version, std::uint16_t part,
                     std::uint32_t n);  // leaves, chunks
std::string SmallKey(std::uint64_t version, std::uint16_t part, BlockKind kind,
                     std::uint32_t n);
// Of the first and of the last record of a segment.
std::string SegmentHeaderKey(const SegmentKeyFields& segment);
std::string SegmentTableKey(const SegmentKeyFields& segment);

struct BlockKeyFields {
  std::uint64_t version;
  std::uint16_t part;
  std::uint32_t n;
};
struct SmallKeyFields {
  std::uint64_t version;
  std::uint16_t part;
  BlockKind kind;
  std::uint32_t n;
};
std::optional<BlockKeyFields> DecodeBlockKey(std::string_view key);
// True for a gap of `chunks`: the key of a block and a zero byte. What it holds
// is nothing but zeros, at most so many; no reader asks for it.
bool IsGapKey(std::string_view key);
inline constexpr std::size_t kMostGapBytes = 4096 + 127;
std::optional<SmallKeyFields> DecodeSmallKey(std::string_view key);

// [begin, end) of keys; made only by the functions below. An empty `end` means
// no upper bound.
struct KeyRange {
  std::string begin;
  std::string end;
};
KeyRange AllRows(Row row);
KeyRange StepsOfBranch(std::uint32_t branch);
KeyRange BlocksOfVersion(std::uint64_t version);  // leaves, chunks, small
KeyRange BlocksOfSegment(std::uint64_t version, std::uint16_t part,
                         std::uint8_t builder);  // leaves, chunks
KeyRange WholeSpace();

// A key as a person reads it, e.g. "step branch 0 step 12" or
// "chunks v17 part 0 n 3/12"; hexadecimal where it decodes as nothing known.
std::string DescribeKey(Space space, std::string_view key);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_KEYS_H_
