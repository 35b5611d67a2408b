// SPDX-License-Identifier: Apache-2.0

#include "schema/keys.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/big_endian.h"
#include "base/digest.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

constexpr std::uint64_t kStepSignBit = std::uint64_t{1} << 63;

std::string RowKey(Row row) { return std::string(1, static_cast<char>(row)); }

template <typename... Fields>
std::string RowKey(Row row, Fields... fields) {
  std::string key = RowKey(row);
  (base::AppendBig(fields, &key), ...);
  return key;
}

bool Is(Row row, std::size_t size, std::string_view key) {
  return key.size() == size && key[0] == static_cast<char>(row);
}

std::optional<SegmentKeyFields> SegmentIn(Row row, std::string_view key) {
  if (!Is(row, 13, key)) return std::nullopt;
  const auto space = static_cast<Space>(key[11]);
  if (space != Space::kLeaves && space != Space::kChunks) return std::nullopt;
  return SegmentKeyFields{base::ReadBig<std::uint64_t>(key, 1),
                          base::ReadBig<std::uint16_t>(key, 9), space,
                          static_cast<std::uint8_t>(key[12])};
}

// Every key that starts with `prefix`.
KeyRange PrefixRange(std::string prefix) {
  KeyRange range{prefix, std::move(prefix)};
  while (!range.end.empty() && range.end.back() == '\xff') {
    range.end.pop_back();
  }
  if (!range.end.empty()) {
    range.end.back() =
        static_cast<char>(static_cast<unsigned char>(range.end.back()) + 1);
  }
  return range;
}

}  // namespace

std::string StoreKey() { return RowKey(Row::kStore); }

std::string StepKey(std::uint32_t branch, std::int64_t step) {
  return RowKey(Row::kStep, branch,
                static_cast<std::uint64_t>(step) ^ kStepSignBit);
}

std::string StepMetaKey(std::uint64_t version) {
  return RowKey(Row::kStepMeta, version);
}

std::string TreeKey(const base::Digest& digest) {
  return RowKey(Row::kTree).append(digest.view());
}

std::string TreePageKey(const base::Digest& digest) {
  return RowKey(Row::kTreePage).append(digest.view());
}

std::string DeadKey(std::uint64_t version) {
  return RowKey(Row::kDead, version);
}

std::string SegmentKey(std::uint64_t version, std::uint16_t part, Space space,
                       std::uint8_t builder) {
  return RowKey(Row::kSegment, version, part, static_cast<std::uint8_t>(space),
                builder);
}

std::string SegmentKey(const SegmentKeyFields& segment) {
  return SegmentKey(segment.version, segment.part, segment.space,
                    segment.builder);
}

std::string FarKey(const SegmentKeyFields& segment) {
  return RowKey(Row::kFar, segment.version, segment.part,
                static_cast<std::uint8_t>(segment.space), segment.builder);
}

std::string CommitKey(std::uint64_t ordinal) {
  return RowKey(Row::kCommit, ordinal);
}

std::string RemovedKey(std::uint64_t version) {
  return RowKey(Row::kRemoved, version);
}

std::string BranchKey(std::uint32_t branch) {
  return RowKey(Row::kBranch, branch);
}

std::string TagKey(std::string_view name) {
  return RowKey(Row::kTag).append(name);
}

std::string PinKey(std::uint64_t version) { return RowKey(Row::kPin, version); }

std::string SettingsKey(std::uint32_t branch) {
  return RowKey(Row::kSettings, branch);
}

std::optional<StepKeyFields> DecodeStepKey(std::string_view key) {
  if (!Is(Row::kStep, 13, key)) return std::nullopt;
  return StepKeyFields{
      base::ReadBig<std::uint32_t>(key, 1),
      static_cast<std::int64_t>(base::ReadBig<std::uint64_t>(key, 5) ^
                                kStepSignBit)};
}

std::optional<SegmentKeyFields> DecodeSegmentKey(std::string_view key) {
  return SegmentIn(Row::kSegment, key);
}

std::optional<SegmentKeyFields> DecodeFarKey(std::string_view key) {
  const auto fields = SegmentIn(Row::kFar, key);
  return fields.has_value() && fields->space == Space::kChunks ? fields
                                                               : std::nullopt;
}

std::optional<std::uint64_t> DecodeVersionKey(Row row, std::string_view key) {
  switch (row) {
    case Row::kStepMeta:
    case Row::kDead:
    case Row::kCommit:
    case Row::kRemoved:
    case Row::kPin:
      break;
    default:
      return std::nullopt;
  }
  if (!Is(row, 9, key)) return std::nullopt;
  return base::ReadBig<std::uint64_t>(key, 1);
}

std::optional<std::uint32_t> DecodeBranchKey(std::string_view key) {
  if (!Is(Row::kBranch, 5, key)) return std::nullopt;
  return base::ReadBig<std::uint32_t>(key, 1);
}

std::optional<std::uint32_t> DecodeSettingsKey(std::string_view key) {
  if (!Is(Row::kSettings, 5, key)) return std::nullopt;
  return base::ReadBig<std::uint32_t>(key, 1);
}

std::optional<base::Digest> DecodeDigestKey(Row row, std::string_view key) {
  if (row != Row::kTree && row != Row::kTreePage) return std::nullopt;
  if (!Is(row, 17, key)) return std::nullopt;
  return base::Digest::FromBytes(key.substr(1));
}

std::optional<std::string> DecodeTagKey(std::string_view key) {
  if (key.size() < 2 || key[0] != static_cast<char>(Row::kTag) ||
      static_cast<std::int64_t>(key.size() - 1) > kMaxNameBytes) {
    return std::nullopt;
  }
  return std::string(key.substr(1));
}

std::string BlockKey(std::uint64_t version, std::uint16_t part,
                     std::uint32_t n) {
  std::string key;
  base::AppendBig(version, &key);
  base::AppendBig(part, &key);
  base::AppendBig(n, &key);
  return key;
}

std::string SegmentHeaderKey(const SegmentKeyFields& segment) {
  return BlockKey(segment.version, segment.part,
                  BlockNumber(segment.builder, kHeaderSequence));
}

std::string SegmentTableKey(const SegmentKeyFields& segment) {
  return BlockKey(segment.version, segment.part,
                  BlockNumber(segment.builder, kTableSequence));
}

std::string SmallKey(std::uint64_t version, std::uint16_t part, BlockKind kind,
                     std::uint32_t n) {
  std::string key;
  base::AppendBig(version, &key);
  base::AppendBig(part, &key);
  base::AppendBig(static_cast<std::uint8_t>(kind), &key);
  base::AppendBig(n, &key);
  return key;
}

std::optional<BlockKeyFields> DecodeBlockKey(std::string_view key) {
  if (key.size() != 14) return std::nullopt;
  return BlockKeyFields{base::ReadBig<std::uint64_t>(key, 0),
                        base::ReadBig<std::uint16_t>(key, 8),
                        base::ReadBig<std::uint32_t>(key, 10)};
}

bool IsGapKey(std::string_view key) {
  return key.size() == 15 && key.back() == '\0';
}

std::optional<SmallKeyFields> DecodeSmallKey(std::string_view key) {
  if (key.size() != 15) return std::nullopt;
  const auto kind = static_cast<std::uint8_t>(key[10]);
  if (kind > static_cast<std::uint8_t>(BlockKind::kChunk)) return std::nullopt;
  return SmallKeyFields{base::ReadBig<std::uint64_t>(key, 0),
                        base::ReadBig<std::uint16_t>(key, 8),
                        static_cast<BlockKind>(kind),
                        base::ReadBig<std::uint32_t>(key, 11)};
}

KeyRange AllRows(Row row) { return PrefixRange(RowKey(row)); }

KeyRange StepsOfBranch(std::uint32_t branch) {
  return PrefixRange(RowKey(Row::kStep, branch));
}

KeyRange BlocksOfVersion(std::uint64_t version) {
  std::string prefix;
  base::AppendBig(version, &prefix);
  return PrefixRange(std::move(prefix));
}

KeyRange BlocksOfSegment(std::uint64_t version, std::uint16_t part,
                         std::uint8_t builder) {
  std::string prefix;
  base::AppendBig(version, &prefix);
  base::AppendBig(part, &prefix);
  base::AppendBig(builder, &prefix);
  return PrefixRange(std::move(prefix));
}

KeyRange WholeSpace() { return {}; }

}  // namespace ckptree::schema
