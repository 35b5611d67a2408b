// SPDX-License-Identifier: Apache-2.0

// Fuzzes the decoders of keys: each accepts exactly what its encoder makes.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/digest.h"
#include "schema/keys.h"
#include "schema/spaces.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

using schema::Row;

void FuzzRows(std::string_view key) {
  if (const auto step = schema::DecodeStepKey(key)) {
    Require(schema::StepKey(step->branch, step->step) == key, "a step key");
  }
  if (const auto segment = schema::DecodeSegmentKey(key)) {
    Require(schema::SegmentKey(segment->version, segment->part, segment->space,
                               segment->builder) == key,
            "a segment key");
  }
  if (const auto segment = schema::DecodeFarKey(key)) {
    Require(schema::FarKey(*segment) == key, "the key of a far segment");
  }
  if (const auto branch = schema::DecodeSettingsKey(key)) {
    Require(schema::SettingsKey(*branch) == key, "a settings key");
  }
  if (const auto branch = schema::DecodeBranchKey(key)) {
    Require(schema::BranchKey(*branch) == key, "a branch key");
  }
  if (const auto name = schema::DecodeTagKey(key)) {
    Require(schema::TagKey(*name) == key, "a tag key");
  }
  if (const auto digest = schema::DecodeDigestKey(Row::kTree, key)) {
    Require(schema::TreeKey(*digest) == key, "a tree key");
  }
  if (const auto digest = schema::DecodeDigestKey(Row::kTreePage, key)) {
    Require(schema::TreePageKey(*digest) == key, "a tree page key");
  }
  const auto version_row = [&](Row row, auto encode) {
    if (const auto version = schema::DecodeVersionKey(row, key)) {
      Require(encode(*version) == key, "the key of a version");
    }
  };
  version_row(Row::kStepMeta, schema::StepMetaKey);
  version_row(Row::kDead, schema::DeadKey);
  version_row(Row::kCommit, schema::CommitKey);
  version_row(Row::kRemoved, schema::RemovedKey);
  version_row(Row::kPin, schema::PinKey);
}

void FuzzBlocks(std::string_view key) {
  if (const auto block = schema::DecodeBlockKey(key)) {
    Require(schema::BlockKey(block->version, block->part, block->n) == key,
            "a block key");
    Require(!schema::IsGapKey(key), "a block is no gap");
    const schema::KeyRange range = schema::BlocksOfSegment(
        block->version, block->part, schema::BuilderOf(block->n));
    Require(range.begin <= key && (range.end.empty() || key < range.end),
            "a block is among those of its segment");
  }
  if (const auto small = schema::DecodeSmallKey(key)) {
    Require(schema::SmallKey(small->version, small->part, small->kind,
                             small->n) == key,
            "a small key");
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using ckptree::schema::Space;
  const std::string_view key = ckptree::fuzz::TextOf(data, size);
  ckptree::fuzz::FuzzRows(key);
  ckptree::fuzz::FuzzBlocks(key);
  for (const Space space :
       {Space::kRecords, Space::kSmall, Space::kLeaves, Space::kChunks}) {
    const std::string text = ckptree::schema::DescribeKey(space, key);
    ckptree::fuzz::Require(
        text.find_first_of(std::string_view("\0\n\r\x1b", 4)) == text.npos,
        "a key as text has no control characters");
  }
  return 0;
}
