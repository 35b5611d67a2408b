// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

std::string SpaceName(Space space) {
  const auto number = static_cast<std::size_t>(space);
  if (number < kSpaceNames.size()) return std::string(kSpaceNames[number]);
  return absl::StrFormat("space %d", number);
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

std::string DescribeN(std::uint32_t n) {
  const std::uint32_t sequence = SequenceOf(n);
  if (sequence == kHeaderSequence) {
    return absl::StrFormat("n %d/header", BuilderOf(n));
  }
  if (sequence == kTableSequence) {
    return absl::StrFormat("n %d/table", BuilderOf(n));
  }
  return absl::StrFormat("n %d/%d", BuilderOf(n), sequence);
}

// Empty where the key is not of a known row.
std::string DescribeRow(std::string_view key) {
  if (key.empty()) return "";
  const auto row = static_cast<Row>(key[0]);
  const auto with_version = [&](std::string_view what) -> std::string {
    const auto version = DecodeVersionKey(row, key);
    return version ? absl::StrFormat("%s v%d", what, *version) : "";
  };
  const auto with_digest = [&](std::string_view what) -> std::string {
    const auto digest = DecodeDigestKey(row, key);
    return digest ? absl::StrFormat("%s %s", what, digest->Hex()) : "";
  };
  switch (row) {
    case Row::kStore:
      return key.size() == 1 ? "store" : "";
    case Row::kStep:
      if (const auto fields = DecodeStepKey(key)) {
        return absl::StrFormat("step branch %d step %d", fields->branch,
                               fields->step);
      }
      return "";
    case Row::kStepMeta:
      return with_version("step meta");
    case Row::kTree:
      return with_digest("tree");
    case Row::kTreePage:
      return with_digest("tree page");
    case Row::kDead:
      return with_version("dead list");
    case Row::kSegment:
      if (const auto fields = DecodeSegmentKey(key)) {
        return absl::StrFormat("segment v%d part %d %s builder %d",
                               fields->version, fields->part,
                               SpaceName(fields->space), fields->builder);
      }
      return "";
    case Row::kCommit: {
      const auto ordinal = DecodeVersionKey(row, key);
      return ordinal ? absl::StrFormat("commit %d", *ordinal) : "";
    }
    case Row::kRemoved:
      return with_version("removed");
    case Row::kBranch: {
      const auto branch = DecodeBranchKey(key);
      return branch ? absl::StrFormat("branch %d", *branch) : "";
    }
    case Row::kTag:
      if (const auto name = DecodeTagKey(key)) {
        return absl::StrFormat("tag \"%s\"", absl::Utf8SafeCHexEscape(*name));
      }
      return "";
    case Row::kPin:
      return with_version("pin");
    case Row::kSettings: {
      const auto branch = DecodeSettingsKey(key);
      return branch ? absl::StrFormat("settings of branch %d", *branch) : "";
    }
    case Row::kFar:
      if (const auto fields = DecodeFarKey(key)) {
        return absl::StrFormat("far segment v%d part %d %s builder %d",
                               fields->version, fields->part,
                               SpaceName(fields->space), fields->builder);
      }
      return "";
  }
  return "";
}

std::string_view KindName(BlockKind kind) {
  switch (kind) {
    case BlockKind::kHeader:
      return "header";
    case BlockKind::kLeafRecord:
      return "leaf record";
    case BlockKind::kChunk:
      return "chunk";
  }
  return "unknown";
}

}  // namespace

std::string DescribeKey(Space space, std::string_view key) {
  const std::string name = SpaceName(space);
  switch (space) {
    case Space::kRecords:
      if (std::string text = DescribeRow(key); !text.empty()) return text;
      break;
    case Space::kSmall:
      if (const auto fields = DecodeSmallKey(key)) {
        if (fields->kind == BlockKind::kHeader) {
          return absl::StrFormat("small v%d part %d header", fields->version,
                                 fields->part);
        }
        return absl::StrFormat("small v%d part %d %s %s", fields->version,
                               fields->part, KindName(fields->kind),
                               DescribeN(fields->n));
      }
      break;
    case Space::kLeaves:
    case Space::kChunks:
      if (const auto fields = DecodeBlockKey(key)) {
        return absl::StrFormat("%s v%d part %d %s", name, fields->version,
                               fields->part, DescribeN(fields->n));
      }
      break;
  }
  return absl::StrFormat("%s key 0x%s", name, Hex(key));
}

}  // namespace ckptree::schema
