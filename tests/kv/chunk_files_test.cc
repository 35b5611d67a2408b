// SPDX-License-Identifier: Apache-2.0

// Bytes of chunks, read straight from their files.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/rocks/segment_layout.h"
#include "kv/segment_writer.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::FlipByte;
using schema::Space;
using ::testing::Optional;

class ChunkFilesTest : public KvTest {
 protected:
  // Nothing where the bytes cannot be read straight.
  static std::optional<std::string> ReadStraight(const Database& database,
                                                 std::string_view key,
                                                 std::uint64_t offset,
                                                 std::size_t bytes) {
    std::string read(bytes, '?');
    const std::uint64_t whole =
        database.ValueBytes(Space::kChunks, key).value_or(0);
    // Of no other value.
    EXPECT_FALSE(
        database.ReadUnchecked(Space::kChunks, key, whole + 1, offset,
                               std::as_writable_bytes(std::span(read))));
    if (!database.ReadUnchecked(Space::kChunks, key, whole, offset,
                                std::as_writable_bytes(std::span(read)))) {
      return std::nullopt;
    }
    return read;
  }

  // Adopts 50 values of 10 000 bytes and more; where their one file is.
  void AdoptOne(Database* database, LiveFile* file) {
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 3, Space::kChunks, 50, 10000));
    ASSERT_OK(database->Adopt({segment}));
    ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                         database->LiveFiles());
    ASSERT_EQ(files.size(), 1);
    *file = files[0];
  }
};

TEST_F(ChunkFilesTest, AnyBytesOfAnyValueAreRead) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  // Around each length that takes one byte more to write.
  const std::vector<std::size_t> sizes = {
      10,   0,     1,     63,    64,    127,     128,     129,
      4096, 16383, 16384, 16385, 70000, 2097151, 2097152, 2097153};
  ASSERT_OK_AND_ASSIGN(
      auto writer,
      SegmentWriter::Create(options_, Space::kChunks,
                            database->staging_directory() + "/a.sst",
                            /*expected_bytes=*/1 << 20));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int n = static_cast<int>(i);
    const std::string value = Payload(1, n, sizes[i]);
    ASSERT_OK(n % 3 == 1 ? writer->AddAligned(ChunkKey(1, n), value)
                         : writer->Add(ChunkKey(1, n), value));
  }
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment, writer->Finish());
  ASSERT_OK(database->Adopt({segment}));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int n = static_cast<int>(i);
    const std::string key = ChunkKey(1, n);
    const std::string value = Payload(1, n, sizes[i]);
    EXPECT_THAT(ReadStraight(*database, key, 0, value.size()), Optional(value));
    EXPECT_THAT(ReadStraight(*database, key, 2, value.size() - 2),
                Optional(value.substr(2)));
    EXPECT_THAT(ReadStraight(*database, key, value.size() - 1, 1),
                Optional(value.substr(value.size() - 1)));
    EXPECT_EQ(ReadStraight(*database, key, 1, value.size()), std::nullopt);
    EXPECT_EQ(ReadStraight(*database, key, value.size() + 1, 0), std::nullopt);
    EXPECT_EQ(ReadStraight(*database, key, ~std::uint64_t{0}, 2), std::nullopt);
  }
}

TEST_F(ChunkFilesTest, WhatIsNotThereIsLeftToTheDatabase) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  EXPECT_EQ(ReadStraight(*database, ChunkKey(7, 1), 0, 1), std::nullopt);
  ASSERT_OK_AND_ASSIGN(const StagedSegment chunks,
                       Stage(*database, 7, Space::kChunks, 5, 1000));
  ASSERT_OK_AND_ASSIGN(const StagedSegment leaves,
                       Stage(*database, 7, Space::kLeaves, 5, 1000));
  ASSERT_OK(database->Adopt({chunks, leaves}));
  EXPECT_THAT(ReadStraight(*database, ChunkKey(7, 1), 0, 3),
              Optional(std::string("7/1")));
  EXPECT_EQ(ReadStraight(*database, ChunkKey(6, 1), 0, 1), std::nullopt);
  EXPECT_EQ(ReadStraight(*database, ChunkKey(8, 1), 0, 1), std::nullopt);
  std::byte byte{};
  EXPECT_FALSE(database->ReadUnchecked(Space::kLeaves, ChunkKey(7, 1), 1003, 0,
                                       std::span(&byte, 1)));
  EXPECT_EQ(database->ValueBytes(Space::kChunks, ChunkKey(7, 1)),
            Payload(7, 1, 1000).size());
  EXPECT_EQ(database->ValueBytes(Space::kLeaves, ChunkKey(7, 1)), std::nullopt);
  ASSERT_OK(
      database->Drop(Space::kChunks, {{VersionKey(7, ""), VersionKey(8, "")}}));
  EXPECT_EQ(ReadStraight(*database, ChunkKey(7, 1), 0, 3), std::nullopt);
  ASSERT_OK(database->Close());
  EXPECT_EQ(ReadStraight(*database, ChunkKey(7, 1), 0, 3), std::nullopt);
}

TEST_F(ChunkFilesTest, AFileWithADamagedIndexIsReadByTheHeadsOfItsBlocks) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  LiveFile file;
  ASSERT_NO_FATAL_FAILURE(AdoptOne(database.get(), &file));
  // It stands behind the last block.
  std::string all(file.bytes, '\0');
  std::ifstream(file.path, std::ios::binary)
      .read(all.data(), static_cast<std::streamsize>(all.size()));
  const std::string last = Payload(3, 49, 10000);
  const std::size_t end = all.find(last) + last.size();
  ASSERT_LT(end, all.size());
  FlipByte(file.path, end + kBlockTailBytes + 20);
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(ReadStraight(*database, ChunkKey(3, i), 0, 10000),
                Optional(Payload(3, i, 10000).substr(0, 10000)));
  }
  EXPECT_EQ(ReadStraight(*database, ChunkKey(4, 1), 0, 3), std::nullopt);
}

TEST_F(ChunkFilesTest, AFileThatIsGoneIsLeftToTheDatabase) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  LiveFile file;
  ASSERT_NO_FATAL_FAILURE(AdoptOne(database.get(), &file));
  std::filesystem::remove(file.path);
  EXPECT_EQ(ReadStraight(*database, ChunkKey(3, 1), 0, 3), std::nullopt);
}

TEST_F(ChunkFilesTest, AFileThatIsCutWhileItIsOpenIsLeftToTheDatabase) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  LiveFile file;
  ASSERT_NO_FATAL_FAILURE(AdoptOne(database.get(), &file));
  EXPECT_THAT(ReadStraight(*database, ChunkKey(3, 1), 0, 3),
              Optional(std::string("3/1")));
  std::filesystem::resize_file(file.path, 200000);
  EXPECT_THAT(ReadStraight(*database, ChunkKey(3, 1), 0, 3),
              Optional(std::string("3/1")));
  EXPECT_EQ(ReadStraight(*database, ChunkKey(3, 40), 0, 3), std::nullopt);
}

TEST(SegmentLayoutTest, TheSizeOfABlockGivesThatOfItsValue) {
  for (const std::uint64_t key : {1u, 16u, 119u, 120u, 300u}) {
    for (std::uint64_t value = 0; value < 70000;
         value += value < 300 ? 1 : 97) {
      const std::uint64_t block =
          BytesBefore(key, value) + value + kRestartsBytes;
      const std::optional<ValuePlace> place = ValueInBlock(key, block);
      ASSERT_TRUE(place.has_value());
      EXPECT_EQ(place->size, value);
      EXPECT_EQ(place->offset, BytesBefore(key, value));
    }
    EXPECT_EQ(ValueInBlock(key, 5), std::nullopt);
  }
}

}  // namespace
}  // namespace ckptree::kv
