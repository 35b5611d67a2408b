// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "schema/limits.h"
#include "tests/schema/samples.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

constexpr int kRandomRounds = 2000;

template <typename Change>
void RefuseLeaf(Change change, const char* fault,
                LeafRecord record = SampleLeaf()) {
  change(&record);
  const absl::Status status = DecodeLeafRecord(Encoded(record)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << fault;
  EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  // Who writes is told the same, but of lists that do not go together.
  const bool lists = std::any_of(
      record.boxes.begin(), record.boxes.end(), [&](const Box& box) {
        return box.shape.size() != 2 || box.start.size() != 2;
      });
  if (!lists) EXPECT_EQ(CheckLeafRecord(record), status);
}

TEST(LeafRecordTest, RefusesWhatCannotBe) {
  using R = LeafRecord;
  RefuseLeaf([](R* r) { r->since_version = 0; }, "since version 0");
  RefuseLeaf([](R* r) { r->byte_length = 61; }, "the chunks have 60 bytes");
  RefuseLeaf([](R* r) { r->byte_length = 58; }, "the chunks have 60 bytes");
  RefuseLeaf(
      [](R* r) {
        r->chunks.pop_back();
        r->statistics.clear();
      },
      "the boxes have 2 chunks, there are 1");
  RefuseLeaf([](R* r) { r->chunks[0].version = 0; }, "version 0");
  RefuseLeaf([](R* r) { r->chunks[0].place = Space::kLeaves; }, "space 2");
  RefuseLeaf([](R* r) { r->chunks[0].place = static_cast<Space>(77); },
             "space 77");
  RefuseLeaf([](R* r) { r->chunks[1].part = 4096; }, "part 4096");
  RefuseLeaf([](R* r) { r->chunks[1].n = kTableSequence; }, "no number");
  RefuseLeaf([](R* r) { r->chunks[1].n = BlockNumber(1, 0); }, "no number");
  RefuseLeaf([](R* r) { r->chunks[0].length = 35; }, "the chunks have 59");
  RefuseLeaf([](R* r) { r->chunks[0].block_length = 35; }, "a block of 35");
  RefuseLeaf([](R* r) { r->chunks[0].length = 0; }, "a chunk of 0 bytes");
  RefuseLeaf([](R* r) { r->chunks[0].offset = kMaxChunkBytes; }, "at offset");
  RefuseLeaf([](R* r) { r->chunks[0].block_length = kMaxChunkBytes + 1; },
             "of a block of 16777217");
  RefuseLeaf([](R* r) { r->boxes[0].start[0] = -1; }, "out of range");
  RefuseLeaf([](R* r) { r->boxes[0].shape[1] = -1; }, "out of range");
  RefuseLeaf([](R* r) { r->boxes[0].chunk_shape[0] = 0; }, "out of range");
  RefuseLeaf([](R* r) { r->boxes[0].start.push_back(0); }, "boxes of rank");
  RefuseLeaf(
      [](R* r) {
        const std::vector<std::int64_t> many(65, 1);
        r->boxes = {{many, many, many}};
      },
      "65 dimensions");
  RefuseLeaf(
      [](R* r) {
        const std::vector<std::int64_t> large(2, std::int64_t{1} << 40);
        r->boxes = {{{0, 0}, large, {1, 1}}};
      },
      "too many elements");
  RefuseLeaf([](R* r) { r->boxes.assign(2, {}); }, "2 boxes of rank 0");
  RefuseLeaf([](R* r) { r->statistics.pop_back(); }, "statistics of 1 chunks");
  RefuseLeaf([](R* r) { r->statistics[0].nan = 10; }, "cannot be");
  RefuseLeaf([](R* r) { r->statistics[0].zero = 10; }, "cannot be");
  RefuseLeaf([](R* r) { r->statistics[0].min = 2; }, "cannot be");
  RefuseLeaf(
      [](R* r) {
        r->statistics[0].max = std::numeric_limits<double>::quiet_NaN();
      },
      "cannot be");
  RefuseLeaf([](R* r) { r->byte_length = 9; }, "8 inline bytes", InlineLeaf());
  RefuseLeaf([](R* r) { r->boxes = SampleLeaf().boxes; }, "chunks",
             InlineLeaf());
  RefuseLeaf(
      [](R* r) {
        r->inline_value.assign(257, 'x');
        r->byte_length = 257;
      },
      "257 inline bytes", InlineLeaf());
}

TEST(LeafRecordTest, EmptyValuesAndScalarsRoundTrip) {
  LeafRecord empty;
  empty.since_version = 1;
  empty.is_inline = true;
  EXPECT_EQ(*DecodeLeafRecord(Encoded(empty)), empty);
  empty.is_inline = false;  // Another record.
  EXPECT_EQ(*DecodeLeafRecord(Encoded(empty)), empty);
  LeafRecord none = empty;  // An array with no elements.
  none.boxes = {{{0, 0}, {0, 7}, {1, 7}}};
  EXPECT_EQ(*DecodeLeafRecord(Encoded(none)), none);
  LeafRecord scalar = SampleLeaf();  // An array without dimensions.
  scalar.boxes = {{}};
  scalar.chunks.resize(1);
  scalar.statistics.clear();
  scalar.byte_length = 36;
  EXPECT_EQ(*DecodeLeafRecord(Encoded(scalar)), scalar);
}

TEST(LeafRecordTest, ChunkCountStopsAtTheLargestNumber) {
  EXPECT_EQ(ChunkCount({{0, 0}, {5, 3}, {3, 3}}), 2);
  EXPECT_EQ(ChunkCount({{0, 0}, {0, 3}, {3, 3}}), 0);
  EXPECT_EQ(ChunkCount({}), 1);
  const std::int64_t large = std::int64_t{1} << 55;
  EXPECT_EQ(ChunkCount({{0, 0}, {large, large}, {1, 1}}), INT64_MAX);
  EXPECT_EQ(ChunkCount({{0, 0, 0}, {large, large, 0}, {1, 1, 1}}), 0);
}

TEST(LeafRecordTest, ValueDigestIsOfTheValueAlone) {
  LeafRecord other = SampleLeaf();
  other.since_version = 99;
  other.chunks[0].n += 7;
  other.chunks[1].version = 3;
  other.statistics.clear();
  EXPECT_EQ(ValueDigest(other), ValueDigest(SampleLeaf()));
  other.chunks[1].digest = base::DigestOf("third");
  EXPECT_NE(ValueDigest(other), ValueDigest(SampleLeaf()));
  EXPECT_NE(ValueDigest(InlineLeaf()), ValueDigest(SampleLeaf()));
}

TEST(LeafRecordTest, RandomRecordsRoundTrip) {
  constexpr unsigned kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  LeafRecord used = InlineLeaf();  // What was in it does not stay.
  for (int round = 0; round < kRandomRounds; ++round) {
    LeafRecord record;
    record.since_version = 1 + (random() >> below(63));
    record.since_step = static_cast<std::int64_t>(random());
    const bool boxed = below(2) != 0;
    std::uint64_t chunks = below(5);
    if (round % 500 == 7) chunks = 6000;  // Larger than the scratch message.
    if (boxed) {
      const auto rows = static_cast<std::int64_t>(chunks) * 2;
      record.boxes.push_back({{1, 0}, {rows, 9}, {2, 9}});
    }
    const bool alike = below(2) != 0;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      ChunkRef chunk;
      chunk.place = alike || below(2) != 0 ? Space::kChunks : Space::kSmall;
      chunk.version = 1 + (alike ? 4 : below(1000));
      chunk.part = static_cast<std::uint16_t>(alike ? 4 : below(4096));
      const auto sequence = static_cast<std::uint32_t>(below(kMaxSequence));
      chunk.n =
          BlockNumber(static_cast<std::uint8_t>(below(256)), 1 + sequence);
      chunk.length = 1 + static_cast<std::uint32_t>(below(1000));
      if (!alike && below(2) != 0) {
        chunk.offset = static_cast<std::uint32_t>(below(1000));
      }
      chunk.block_length = chunk.offset + chunk.length;
      if (!alike) {
        chunk.block_length += static_cast<std::uint32_t>(below(1000));
      }
      chunk.digest = base::DigestOf(std::to_string(random()));
      record.byte_length += chunk.length;
      record.chunks.push_back(chunk);
      if (alike) record.statistics.push_back(SampleStatistics());
    }
    const auto decoded = DecodeLeafRecord(Encoded(record));
    ASSERT_TRUE(decoded.ok()) << decoded.status() << " round " << round;
    ASSERT_EQ(*decoded, record) << "round " << round;
    ASSERT_EQ(CheckLeafRecord(record), absl::OkStatus()) << "round " << round;
    ASSERT_TRUE(DecodeLeafRecordInto(Encoded(record), &used).ok());
    ASSERT_EQ(used, record) << "round " << round;
    if (round % 8 != 0) continue;
    ASSERT_TRUE(DecodeLeafRecordInto(Encoded(InlineLeaf()), &used).ok());
    ASSERT_EQ(used, InlineLeaf()) << "round " << round;
  }
}

TEST(LeafRecordTest, IsCompactAndCheap) {
  LeafRecord record = SampleLeaf();
  record.boxes[0].chunk_shape = {5, 3};
  record.chunks.resize(1);
  record.statistics.resize(1);
  record.byte_length = 36;
  std::string out;
  EncodeLeafRecord(record, &out);
  EXPECT_LE(out.size(), 110u);
  constexpr int kLoops = 200'000;
  std::size_t chunks = 0;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kLoops; ++i) {
    out.clear();
    EncodeLeafRecord(record, &out);
    chunks += DecodeLeafRecord(out)->chunks.size();
  }
  const double seconds =
      static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(chunks, static_cast<std::size_t>(kLoops));
  // A figure for the log: machines differ, so nothing is asserted of it.
  std::printf("leaf record: %zu bytes, encode and decode %.0f ns of CPU\n",
              out.size(), seconds * 1e9 / kLoops);
}

TEST(LeafMapTest, RunsGrowAndAnswer) {
  const LeafMap map = SampleMap();
  EXPECT_EQ(map.size(), 128u);
  EXPECT_EQ(map.runs().size(), 3u);
  EXPECT_EQ(map.SourceCount(), 2u);
  EXPECT_EQ(map.At(0), (MapRun{0, 1, Space::kLeaves, 7, 0}));
  EXPECT_EQ(map.At(99), (MapRun{99, 1, Space::kLeaves, 7, 99}));
  EXPECT_EQ(map.At(100), (MapRun{100, 1, Space::kSmall, 9, 100}));
  EXPECT_EQ(map.At(127), (MapRun{127, 1, Space::kLeaves, 7, 127}));
  LeafMap one;
  for (std::uint32_t i = 0; i < 1000; ++i) one.Append(Space::kLeaves, 3, i + 5);
  EXPECT_EQ(one.runs().size(), 1u);
  EXPECT_LE(EncodeLeafMap(one).size(), 5u);
}

TEST(LeafMapTest, RefusesMalformedBytes) {
  for (const std::string& bytes : std::vector<std::string>{
           "", "\x80", "\x81\x00", "\x01", std::string("\x01\x02\x05", 3),
           std::string("\x01\x00\x05\x00", 4),              // No leaves.
           std::string("\x01\x02\x00\x00", 4),              // Version 0.
           std::string("\x01\x02\x05\x01", 4),              // Source -1.
           std::string("\x01\x02\x05\x00\x00", 5),          // Bytes after it.
           std::string("\x02\x02\x05\x00\x02\x05\x00", 7),  // One run.
           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
           std::string("\x01\x82\x80\x80\x01\x05\x00", 7)}) {
    EXPECT_EQ(DecodeLeafMap(bytes).status().code(), absl::StatusCode::kDataLoss)
        << bytes.size();
    EXPECT_EQ(PackedLeafMap::Of(bytes).status(), DecodeLeafMap(bytes).status());
  }
  EXPECT_TRUE(DecodeLeafMap(std::string(1, '\0')).ok());
}

TEST(LeafMapTest, RandomMapsRoundTripAndCutsAreErrors) {
  constexpr unsigned kSeed = 6;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < kRandomRounds; ++round) {
    LeafMap map;
    for (unsigned i = 0; i <= random() % 20; ++i) {
      map.AppendRun(random() % 2 != 0 ? Space::kLeaves : Space::kSmall,
                    1 + random() % 5, static_cast<std::uint32_t>(random() % 50),
                    1 + static_cast<std::uint32_t>(random() % 100));
    }
    const std::string bytes = EncodeLeafMap(map);
    ASSERT_EQ(*DecodeLeafMap(bytes), map) << "round " << round;
    const absl::StatusOr<PackedLeafMap> packed = PackedLeafMap::Of(bytes);
    ASSERT_TRUE(packed.ok()) << packed.status();
    ASSERT_EQ(*packed, PackedLeafMap(map));
    ASSERT_EQ(packed->bytes(), bytes);
    ASSERT_EQ(packed->Unpack(), map);
    ASSERT_EQ(packed->size(), map.size());
    for (std::uint32_t i = 0; i < map.size(); ++i) {
      ASSERT_EQ(packed->At(i), map.At(i))
          << "round " << round << ", leaf " << i;
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(DecodeLeafMap(bytes.substr(0, size)).ok());
    }
  }
}

}  // namespace
}  // namespace ckptree::schema
