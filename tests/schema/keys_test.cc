// SPDX-License-Identifier: Apache-2.0

#include "schema/keys.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

base::Digest Counting() {
  base::Digest digest;
  for (std::uint8_t i = 0; i < 16; ++i) digest.bytes[i] = i;
  return digest;
}

bool In(const KeyRange& range, const std::string& key) {
  return key >= range.begin && (range.end.empty() || key < range.end);
}

TEST(KeysTest, GoldenBytes) {
  const std::string digest = "000102030405060708090a0b0c0d0e0f";
  EXPECT_EQ(Hex(StoreKey()), "00");
  EXPECT_EQ(Hex(StepKey(1, 258)),
            "01"
            "00000001"
            "8000000000000102");
  EXPECT_EQ(Hex(StepKey(0, -1)),
            "01"
            "00000000"
            "7fffffffffffffff");
  EXPECT_EQ(Hex(StepMetaKey(5)),
            "02"
            "0000000000000005");
  EXPECT_EQ(Hex(TreeKey(Counting())), "03" + digest);
  EXPECT_EQ(Hex(TreePageKey(Counting())), "04" + digest);
  EXPECT_EQ(Hex(DeadKey(5)),
            "05"
            "0000000000000005");
  EXPECT_EQ(Hex(SegmentKey(5, 258, Space::kChunks, 7)),
            "06"
            "0000000000000005"
            "0102"
            "03"
            "07");
  EXPECT_EQ(Hex(CommitKey(9)),
            "07"
            "0000000000000009");
  EXPECT_EQ(Hex(RemovedKey(5)),
            "08"
            "0000000000000005");
  EXPECT_EQ(Hex(BranchKey(3)),
            "09"
            "00000003");
  EXPECT_EQ(Hex(TagKey("best")),
            "0a"
            "62657374");
  EXPECT_EQ(Hex(PinKey(5)),
            "0b"
            "0000000000000005");
  EXPECT_EQ(Hex(SettingsKey(3)),
            "0c"
            "00000003");
  EXPECT_EQ(Hex(FarKey({5, 1, Space::kChunks, 7})),
            "0d"
            "0000000000000005"
            "0001"
            "03"
            "07");
  EXPECT_EQ(Hex(BlockKey(5, 1, BlockNumber(3, 12))),
            "0000000000000005"
            "0001"
            "0300000c");
  EXPECT_EQ(Hex(SmallKey(5, 1, BlockKind::kChunk, BlockNumber(3, 12))),
            "0000000000000005"
            "0001"
            "02"
            "0300000c");
}

TEST(KeysTest, StepsAscendInByteOrder) {
  const std::vector<std::int64_t> steps = {
      INT64_MIN, -65536, -2, -1, 0, 1, 255, 256, 65536, INT64_MAX};
  std::string last;
  for (const std::uint32_t branch : {0u, 1u, 256u, UINT32_MAX}) {
    for (const std::int64_t step : steps) {
      const std::string key = StepKey(branch, step);
      EXPECT_LT(last, key) << branch << " " << step;
      last = key;
      const auto fields = DecodeStepKey(key);
      ASSERT_TRUE(fields.has_value());
      EXPECT_EQ(fields->branch, branch);
      EXPECT_EQ(fields->step, step);
      EXPECT_TRUE(In(StepsOfBranch(branch), key));
      EXPECT_FALSE(In(StepsOfBranch(branch ^ 1), key));
      EXPECT_TRUE(In(AllRows(Row::kStep), key));
      EXPECT_FALSE(In(AllRows(Row::kStepMeta), key));
    }
  }
}

TEST(KeysTest, VersionsAscendInByteOrder) {
  std::string last;
  for (const std::uint64_t version :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255},
        std::uint64_t{256}, std::uint64_t{1} << 40, kMax64}) {
    for (const std::uint16_t part : std::vector<std::uint16_t>{0, 1, 256}) {
      for (const std::uint8_t builder : std::vector<std::uint8_t>{0, 1, 255}) {
        for (const std::uint32_t sequence :
             {kHeaderSequence, 1u, 256u, kMaxSequence, kTableSequence}) {
          const std::uint32_t n = BlockNumber(builder, sequence);
          const std::string key = BlockKey(version, part, n);
          EXPECT_LT(last, key);
          last = key;
          EXPECT_EQ(BuilderOf(n), builder);
          EXPECT_EQ(SequenceOf(n), sequence);
          const auto fields = DecodeBlockKey(key);
          ASSERT_TRUE(fields.has_value());
          EXPECT_EQ(fields->version, version);
          EXPECT_EQ(fields->part, part);
          EXPECT_EQ(fields->n, n);
          EXPECT_TRUE(In(BlocksOfVersion(version), key));
          EXPECT_FALSE(In(BlocksOfVersion(version ^ 1), key));
          EXPECT_TRUE(In(BlocksOfSegment(version, part, builder), key));
          EXPECT_FALSE(
              In(BlocksOfSegment(version, part,
                                 static_cast<std::uint8_t>(builder ^ 1)),
                 key));
        }
      }
    }
  }
}

TEST(KeysTest, RoundTripsEveryOtherKey) {
  for (const std::uint64_t version :
       {std::uint64_t{0}, std::uint64_t{77}, kMax64}) {
    EXPECT_EQ(DecodeVersionKey(Row::kStepMeta, StepMetaKey(version)), version);
    EXPECT_EQ(DecodeVersionKey(Row::kDead, DeadKey(version)), version);
    EXPECT_EQ(DecodeVersionKey(Row::kCommit, CommitKey(version)), version);
    EXPECT_EQ(DecodeVersionKey(Row::kRemoved, RemovedKey(version)), version);
    EXPECT_EQ(DecodeVersionKey(Row::kPin, PinKey(version)), version);
    const std::string key = SegmentKey(version, 9, Space::kLeaves, 255);
    const auto segment = DecodeSegmentKey(key);
    ASSERT_TRUE(segment.has_value());
    EXPECT_EQ(segment->version, version);
    EXPECT_EQ(segment->part, 9);
    EXPECT_EQ(segment->space, Space::kLeaves);
    EXPECT_EQ(segment->builder, 255);
    const auto small =
        DecodeSmallKey(SmallKey(version, 9, BlockKind::kLeafRecord, 1));
    ASSERT_TRUE(small.has_value());
    EXPECT_EQ(small->version, version);
    EXPECT_EQ(small->part, 9);
    EXPECT_EQ(small->kind, BlockKind::kLeafRecord);
    EXPECT_EQ(small->n, 1u);
  }
  EXPECT_EQ(DecodeBranchKey(BranchKey(UINT32_MAX)), UINT32_MAX);
  EXPECT_EQ(DecodeSettingsKey(SettingsKey(UINT32_MAX)), UINT32_MAX);
  const auto far = DecodeFarKey(FarKey({9, 2, Space::kChunks, 255}));
  ASSERT_TRUE(far.has_value());
  EXPECT_EQ(far->version, 9);
  EXPECT_EQ(far->part, 2);
  EXPECT_EQ(far->builder, 255);
  // Leaf records never leave.
  EXPECT_FALSE(DecodeFarKey(FarKey({9, 2, Space::kLeaves, 0})).has_value());
  EXPECT_EQ(DecodeTagKey(TagKey("a/b")), "a/b");
  EXPECT_EQ(DecodeDigestKey(Row::kTree, TreeKey(Counting())), Counting());
  EXPECT_EQ(DecodeDigestKey(Row::kTreePage, TreePageKey(Counting())),
            Counting());
}

TEST(KeysTest, RefusesKeysOfAnotherLengthOrRow) {
  const std::vector<std::string> keys = {StepKey(0, 1),
                                         StepMetaKey(1),
                                         TreeKey(Counting()),
                                         TreePageKey(Counting()),
                                         DeadKey(1),
                                         SegmentKey(1, 0, Space::kChunks, 0),
                                         CommitKey(1),
                                         RemovedKey(1),
                                         FarKey({1, 0, Space::kChunks, 0}),
                                         BranchKey(1),
                                         PinKey(1),
                                         StoreKey(),
                                         ""};
  for (const std::string& key : keys) {
    for (const std::string& bad :
         {key + 'x', key.substr(0, key.empty() ? 0 : key.size() - 1)}) {
      EXPECT_FALSE(DecodeStepKey(bad).has_value()) << Hex(bad);
      EXPECT_FALSE(DecodeSegmentKey(bad).has_value()) << Hex(bad);
      EXPECT_FALSE(DecodeBranchKey(bad).has_value()) << Hex(bad);
      EXPECT_FALSE(DecodeSettingsKey(bad).has_value()) << Hex(bad);
      EXPECT_FALSE(DecodeFarKey(bad).has_value()) << Hex(bad);
      for (int row = 0; row < 16; ++row) {
        EXPECT_FALSE(DecodeVersionKey(static_cast<Row>(row), bad).has_value());
        EXPECT_FALSE(DecodeDigestKey(static_cast<Row>(row), bad).has_value());
      }
    }
  }
  EXPECT_FALSE(DecodeVersionKey(Row::kDead, PinKey(1)).has_value());
  EXPECT_FALSE(DecodeVersionKey(Row::kTree, TreeKey(Counting())).has_value());
  const std::string page = TreePageKey(Counting());
  EXPECT_FALSE(DecodeDigestKey(Row::kTree, page).has_value());
  EXPECT_FALSE(DecodeTagKey(TagKey("")).has_value());
  EXPECT_FALSE(DecodeTagKey(TagKey(std::string(129, 'a'))).has_value());
  EXPECT_FALSE(DecodeTagKey(StoreKey()).has_value());
  EXPECT_FALSE(DecodeBlockKey(std::string(13, 'a')).has_value());
  EXPECT_FALSE(DecodeBlockKey(std::string(15, 'a')).has_value());
  EXPECT_FALSE(IsGapKey(std::string(15, 'a')));
  EXPECT_FALSE(IsGapKey(BlockKey(1, 0, 0)));
  EXPECT_TRUE(IsGapKey(BlockKey(1, 0, 7) + '\0'));
  EXPECT_FALSE(DecodeSmallKey(BlockKey(1, 1, 1)).has_value());
  EXPECT_FALSE(
      DecodeSmallKey(SmallKey(1, 1, static_cast<BlockKind>(3), 1)).has_value());
  for (const Space space :
       {Space::kRecords, Space::kSmall, static_cast<Space>(4)}) {
    EXPECT_FALSE(DecodeSegmentKey(SegmentKey(1, 0, space, 0)).has_value());
  }
}

TEST(KeysTest, RangesEndWhereTheirPrefixDoes) {
  EXPECT_EQ(Hex(StepsOfBranch(UINT32_MAX).end), "02");
  EXPECT_EQ(BlocksOfVersion(kMax64).end, "");
  EXPECT_EQ(Hex(AllRows(Row::kStore).end), "01");
  EXPECT_EQ(WholeSpace().begin, "");
  EXPECT_EQ(WholeSpace().end, "");
}

TEST(KeysTest, DescribesKeysForPeople) {
  EXPECT_EQ(DescribeKey(Space::kRecords, StepKey(0, 12)),
            "step branch 0 step 12");
  EXPECT_EQ(DescribeKey(Space::kChunks, BlockKey(17, 0, BlockNumber(3, 12))),
            "chunks v17 part 0 n 3/12");
  EXPECT_EQ(DescribeKey(Space::kLeaves,
                        BlockKey(17, 0, BlockNumber(3, kTableSequence))),
            "leaves v17 part 0 n 3/table");
  EXPECT_EQ(DescribeKey(Space::kSmall, SmallKey(17, 0, BlockKind::kHeader, 0)),
            "small v17 part 0 header");
  EXPECT_EQ(DescribeKey(Space::kRecords, SegmentKey(4, 1, Space::kChunks, 2)),
            "segment v4 part 1 chunks builder 2");
  EXPECT_EQ(DescribeKey(Space::kRecords, StoreKey()), "store");
  EXPECT_EQ(DescribeKey(Space::kRecords, CommitKey(3)), "commit 3");
  EXPECT_EQ(DescribeKey(Space::kRecords, TagKey("a\n")), "tag \"a\\n\"");
  EXPECT_EQ(DescribeKey(Space::kRecords, "\x01\x02"), "records key 0x0102");
  EXPECT_EQ(DescribeKey(Space::kChunks, ""), "chunks key 0x");
}

}  // namespace
}  // namespace ckptree::schema
