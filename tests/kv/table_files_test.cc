// SPDX-License-Identifier: Apache-2.0

// Values, read straight from the tables that hold them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "kv/rocks/block_entry.h"
#include "kv/rocks/segment_layout.h"
#include "kv/segment_writer.h"
#include "kv/value.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

// Numbers of a damaged block, whose sums would be small again.
TEST(BlockEntryTest, KeysThatAreLongerThanAnyAreNone) {
  const std::string huge = "\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  const std::string one(1, '\1');
  const std::string zero(1, '\0');
  EXPECT_TRUE(ParseHead(zero + one + zero).has_value());
  EXPECT_FALSE(ParseHead(zero + huge + zero).has_value());
  EXPECT_FALSE(ParseHead(huge + one + zero).has_value());
  EXPECT_FALSE(ParseHead(zero + one + huge).has_value());
}

using ::ckptree::testing::FlipByte;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Optional;

class TableFilesTest : public KvTest {
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

TEST_F(TableFilesTest, AnyBytesOfAnyValueAreRead) {
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

TEST_F(TableFilesTest, WhatIsNotThereIsLeftToTheDatabase) {
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

TEST_F(TableFilesTest, NeighboursAreReadTogether) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  LiveFile file;
  ASSERT_NO_FATAL_FAILURE(AdoptOne(database.get(), &file));
  const auto run = [](const std::vector<int>& numbers) {
    std::vector<ArrayBlock> blocks;
    for (const int n : numbers) {
      blocks.push_back({ChunkKey(3, n), Payload(3, n, 10000).size()});
    }
    return blocks;
  };
  // Calls for them in order, once each, and for no other.
  std::vector<std::byte> scratch(1 << 20);
  const auto read = [&](const std::vector<ArrayBlock>& blocks,
                        const std::vector<int>& numbers) {
    std::size_t calls = 0;
    const std::size_t count = database->ReadRun(
        blocks, scratch, [&](std::size_t i, std::span<const std::byte> value) {
          EXPECT_EQ(i, calls++);
          EXPECT_EQ(
              std::string_view(reinterpret_cast<const char*>(value.data()),
                               value.size()),
              Payload(3, numbers[i], 10000));
        });
    EXPECT_EQ(count, calls);
    return count;
  };
  std::vector<int> all;
  for (int n = 1; n <= 40; ++n) all.push_back(n);
  EXPECT_EQ(read(run(all), all), 40);
  EXPECT_EQ(read(run({5}), {5}), 1);
  EXPECT_EQ(read(run({5, 7, 9}), {5, 7, 9}), 3);
  // Far from each other, or not ascending: each is another read.
  EXPECT_EQ(read(run({5, 30}), {5, 30}), 1);
  EXPECT_EQ(read(run({9, 8}), {9, 8}), 1);
  EXPECT_EQ(read(run({}), {}), 0);
  // Those that fit.
  scratch.resize(40000);
  EXPECT_EQ(read(run(all), all), 3);
  scratch.resize(9000);
  EXPECT_EQ(read(run(all), all), 0);
  scratch.resize(1 << 20);
  // Of another size, or not there.
  std::vector<ArrayBlock> blocks = run(all);
  --blocks[2].value_bytes;
  EXPECT_EQ(read(blocks, all), 2);
  blocks[0].value_bytes = ~std::uint64_t{0};
  EXPECT_EQ(read(blocks, all), 0);
  blocks = {{ChunkKey(9, 1), 10}};
  EXPECT_EQ(read(blocks, all), 0);
  // Cut while it is open: those before it come.
  std::filesystem::resize_file(file.path, 55000);
  EXPECT_LT(read(run(all), all), 6);
  ASSERT_OK(database->Close());
  EXPECT_EQ(read(run(all), all), 0);
}

TEST_F(TableFilesTest, AFileWithADamagedIndexIsReadByTheHeadsOfItsBlocks) {
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

TEST_F(TableFilesTest, AFileThatIsGoneIsLeftToTheDatabase) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  LiveFile file;
  ASSERT_NO_FATAL_FAILURE(AdoptOne(database.get(), &file));
  std::filesystem::remove(file.path);
  EXPECT_EQ(ReadStraight(*database, ChunkKey(3, 1), 0, 3), std::nullopt);
}

TEST_F(TableFilesTest, AFileThatIsCutWhileItIsOpenIsLeftToTheDatabase) {
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

// Blocks of small saves, which batches put into tables of `small`.
class SmallTablesTest : public TableFilesTest {
 protected:
  static std::string SmallKey(std::uint64_t version, char kind,
                              std::uint32_t n) {
    std::string rest = {'\0', '\0', kind};
    for (int shift = 24; shift >= 0; shift -= 8) {
      rest.push_back(static_cast<char>((n >> shift) & 0xff));
    }
    return VersionKey(version, rest);
  }
  static std::string RecordOf(std::uint64_t version, int n) {
    return Payload(version, n, 90 + static_cast<std::size_t>(n % 7) * 20);
  }
  static std::string PackOf(std::uint64_t version, int n) {
    return Payload(version, 100 + n, 9000 + static_cast<std::size_t>(n));
  }

  // 200 leaf records and 5 blocks of array bytes.
  static CommitResult Save(Database& database, std::uint64_t version) {
    CommitRequest request;
    request.version = version;
    for (int n = 1; n <= 200; ++n) {
      request.batch.Put(Space::kSmall,
                        SmallKey(version, 1, static_cast<std::uint32_t>(n)),
                        RecordOf(version, n));
    }
    for (int n = 1; n <= 5; ++n) {
      request.batch.PutBlock(
          SmallKey(version, 2, static_cast<std::uint32_t>(n)),
          PackOf(version, n));
    }
    return database.Commit(std::move(request));
  }
  // All of a version goes, as a collection does it.
  static CommitResult Delete(Database& database, std::uint64_t version) {
    CommitRequest request;
    request.kind = CommitKind::kCollect;
    for (int n = 1; n <= 200; ++n) {
      request.batch.Delete(Space::kSmall,
                           SmallKey(version, 1, static_cast<std::uint32_t>(n)));
    }
    for (int n = 1; n <= 5; ++n) {
      request.batch.Delete(Space::kSmall,
                           SmallKey(version, 2, static_cast<std::uint32_t>(n)));
    }
    return database.Commit(std::move(request));
  }

  static std::optional<std::string> ReadPack(const Database& database,
                                             std::uint64_t version, int n,
                                             std::uint64_t offset,
                                             std::size_t bytes) {
    std::string read(bytes, '?');
    if (!database.ReadUnchecked(
            Space::kSmall, SmallKey(version, 2, static_cast<std::uint32_t>(n)),
            PackOf(version, n).size(), offset,
            std::as_writable_bytes(std::span(read)))) {
      return std::nullopt;
    }
    return read;
  }
  static std::optional<std::string> ReadRecord(const Database& database,
                                               std::uint64_t version, int n) {
    return database.ReadWritten(
        Space::kSmall, SmallKey(version, 1, static_cast<std::uint32_t>(n)));
  }

  static void ExpectAll(const Database& database, std::uint64_t version) {
    for (int n = 1; n <= 200; ++n) {
      ASSERT_THAT(ReadRecord(database, version, n),
                  Optional(RecordOf(version, n)))
          << version << " " << n;
    }
    for (int n = 1; n <= 5; ++n) {
      ASSERT_THAT(ReadPack(database, version, n, 0, PackOf(version, n).size()),
                  Optional(PackOf(version, n)));
      ASSERT_THAT(ReadPack(database, version, n, 4000, 500),
                  Optional(PackOf(version, n).substr(4000, 500)));
    }
  }

  std::pair<std::string, std::size_t> TableWith(const std::string& bytes) {
    const auto found = FindTable(bytes);
    EXPECT_TRUE(found.has_value()) << "no table has these bytes";
    return found.value_or(std::pair<std::string, std::size_t>());
  }
  // How many files of the store this process has open that have no name.
  int OpenWithoutName() {
    int count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string to =
          std::filesystem::read_symlink(entry.path(), gone).string();
      count += to.find(Store()) != std::string::npos &&
               to.ends_with(".sst (deleted)");
    }
    return count;
  }
};

TEST_F(SmallTablesTest, ReadsRecordsAndAnyBytesOfArrays) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(Save(*database, 3).status);
    // In memory as yet: the database reads it.
    EXPECT_EQ(ReadRecord(*database, 3, 1), std::nullopt);
    EXPECT_EQ(ReadPack(*database, 3, 1, 0, 1), std::nullopt);
    ASSERT_OK(Save(*database, 4).status);
  }
  for (const Mode mode : {Mode::kReadWrite, Mode::kRead}) {
    ASSERT_OK_AND_ASSIGN(const auto database, Open(mode));
    ExpectAll(*database, 3);
    ExpectAll(*database, 4);
    EXPECT_EQ(ReadRecord(*database, 3, 201), std::nullopt);
    EXPECT_EQ(ReadRecord(*database, 5, 1), std::nullopt);
    EXPECT_EQ(ReadPack(*database, 3, 1, 1, PackOf(3, 1).size()), std::nullopt);
    // A record is no array block, and not read unchecked.
    std::byte byte{};
    EXPECT_FALSE(database->ReadUnchecked(Space::kSmall, SmallKey(3, 1, 1),
                                         RecordOf(3, 1).size(), 0,
                                         std::span(&byte, 1)));
    // Nor is a block that is said to have other bytes.
    EXPECT_FALSE(database->ReadUnchecked(Space::kSmall, SmallKey(3, 2, 1),
                                         PackOf(3, 1).size() + 1, 0,
                                         std::span(&byte, 1)));
    EXPECT_EQ(database->ReadWritten(Space::kLeaves, SmallKey(3, 1, 1)),
              std::nullopt);
  }
}

TEST_F(SmallTablesTest, TablesThatOverlapAreToldApart) {
  ASSERT_OK_AND_ASSIGN(auto database, Create());
  for (const std::uint64_t version : {3u, 4u, 5u, 9u}) {
    ASSERT_OK(Save(*database, version).status);
    if (version == 4) database.reset();
    if (version == 4) {
      ASSERT_OK_AND_ASSIGN(database, Open());
    }
  }
  // Of 3 the later table has deletions alone.
  ASSERT_OK(Delete(*database, 3).status);
  database.reset();
  ASSERT_OK_AND_ASSIGN(database, Open(Mode::kRead));
  ExpectAll(*database, 4);
  ExpectAll(*database, 5);
  ExpectAll(*database, 9);
  EXPECT_THAT(database->Get(Space::kSmall, SmallKey(3, 1, 1)),
              IsOkAndHolds(std::nullopt));
  // Several at once, from one table to another and back; of 7 there is none.
  std::vector<std::string> keys;
  for (const std::uint64_t version : {4u, 5u, 7u, 9u, 4u}) {
    for (const std::uint32_t n : {1u, 2u, 200u, 201u}) {
      keys.push_back(SmallKey(version, 1, n));
    }
  }
  std::map<std::size_t, std::string> found, expected;
  database->ReadWritten(Space::kSmall, keys, [&](std::size_t at, auto value) {
    EXPECT_TRUE(found.emplace(at, value).second);
  });
  for (std::size_t at = 0; at < keys.size(); ++at) {
    const auto one = database->ReadWritten(Space::kSmall, keys[at]);
    if (one.has_value()) expected[at] = *one;
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found.size(), 4u * 3);
}

TEST_F(SmallTablesTest, RowsBesideAWriterAreReadFromItsJournal) {
  ASSERT_OK_AND_ASSIGN(const auto writer, Create());
  ASSERT_OK(Save(*writer, 3).status);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  ExpectAll(*reader, 3);
  EXPECT_EQ(ReadPack(*reader, 3, 1, 1, PackOf(3, 1).size()), std::nullopt);
  ASSERT_OK(Delete(*writer, 3).status);
  ASSERT_OK(reader->Refresh());
  EXPECT_EQ(ReadRecord(*reader, 3, 1), std::nullopt);
  EXPECT_EQ(ReadPack(*reader, 3, 1, 0, 1), std::nullopt);
}

TEST_F(SmallTablesTest, FollowsACompactionAndKeepsNoRemovedTableOpen) {
  ASSERT_OK_AND_ASSIGN(auto database, Create());
  ASSERT_OK(Save(*database, 3).status);
  ASSERT_OK(Save(*database, 4).status);
  database.reset();
  ASSERT_OK_AND_ASSIGN(database, Open());
  ExpectAll(*database, 3);
  const std::string before = TableWith(PackOf(4, 2)).first;
  ASSERT_OK(Delete(*database, 3).status);
  ASSERT_OK(Save(*database, 5).status);
  ASSERT_OK(database->CompactSmall());
  EXPECT_FALSE(std::filesystem::exists(before));
  EXPECT_EQ(OpenWithoutName(), 0);
  ExpectAll(*database, 4);
  ExpectAll(*database, 5);
  EXPECT_EQ(ReadRecord(*database, 3, 1), std::nullopt);
}

TEST_F(SmallTablesTest, NoDroppedTableStaysOpenOrMapped) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  for (const std::uint64_t version : {3u, 4u}) {
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, version, Space::kChunks, 5, 100000));
    ASSERT_OK(database->Adopt({segment}));
    EXPECT_THAT(ReadStraight(*database, ChunkKey(version, 1), 0, 3),
                Optional(std::to_string(version) + "/1"));
    ASSERT_OK_AND_ASSIGN(const Value value,
                         database->View(Space::kChunks, ChunkKey(version, 1)));
    EXPECT_TRUE(value.mapped());
  }
  ASSERT_OK(
      database->Drop(Space::kChunks, {{VersionKey(3, ""), VersionKey(4, "")}}));
  EXPECT_EQ(OpenWithoutName(), 0);
  EXPECT_THAT(ReadStraight(*database, ChunkKey(4, 1), 0, 3),
              Optional(std::string("4/1")));
}

TEST_F(SmallTablesTest, AMappedValueIsComparedWithItsDigest) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database, 3, Space::kChunks, 5, 100000));
  ASSERT_OK(database->Adopt({segment}));
  const std::string value_of_1 = Payload(3, 1, 100000);
  const Saved right{value_of_1.size(), base::DigestOf(value_of_1)};
  const Saved wrong{value_of_1.size(), base::DigestOf(Payload(3, 2, 100000))};
  const Saved longer{value_of_1.size() + 1, right.digest};
  // In this order: what is remembered is which digest it has.
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(
        const Value value,
        database->View(Space::kChunks, ChunkKey(3, 1), &right));
    EXPECT_TRUE(value.checked());
    EXPECT_THAT(database->View(Space::kChunks, ChunkKey(3, 1), &wrong),
                StatusIs(absl::StatusCode::kDataLoss));
    ASSERT_OK_AND_ASSIGN(
        const Value other,
        database->View(Space::kChunks, ChunkKey(3, 1), &longer));
    EXPECT_FALSE(other.checked());
  }
  ASSERT_OK_AND_ASSIGN(const Value value,
                       database->View(Space::kChunks, ChunkKey(3, 1)));
  EXPECT_FALSE(value.checked());
}

TEST_F(SmallTablesTest, DamageIsLeftToTheDatabase) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(Save(*database, 3).status);
  }
  const auto [record_table, record_at] = TableWith(RecordOf(3, 100));
  const auto [pack_table, pack_at] = TableWith(PackOf(3, 2));
  FlipByte(record_table, record_at + 10);
  FlipByte(pack_table, pack_at + 5000);
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_EQ(ReadRecord(*database, 3, 100), std::nullopt);
  EXPECT_THAT(ReadRecord(*database, 3, 1), Optional(RecordOf(3, 1)));
  // Nothing is checked of arrays: the one who asks has a digest.
  EXPECT_THAT(ReadPack(*database, 3, 2, 0, 5000),
              Optional(PackOf(3, 2).substr(0, 5000)));
  EXPECT_NE(ReadPack(*database, 3, 2, 0, 5001),
            std::optional(PackOf(3, 2).substr(0, 5001)));
}

TEST_F(SmallTablesTest, WhereTheIndexOfATableIsDamagedTheOneInMemoryIsRead) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(Save(*database, 3).status);
  }
  // The table's index begins behind the block of the marker.
  const std::string last = PackOf(3, 5);
  const auto [table, at] = TableWith(last);
  FlipByte(table, at + last.size() + kBlockTailBytes + 90);
  ASSERT_OK_AND_ASSIGN(const auto database, Open(Mode::kRead));
  EXPECT_FALSE(database->report().warnings.empty());
  ExpectAll(*database, 3);
}

TEST(FindPutTest, FindsTheNewestOfEachKeyAndNothingElse) {
  // As table format 5 writes a block, with a restart at each second entry.
  std::string block;
  std::vector<std::uint32_t> restarts;
  std::string before;
  int count = 0;
  const auto add = [&](const std::string& key, char type, std::uint32_t seq,
                       const std::string& value) {
    std::string full = key + type;
    for (int i = 0; i < 7; ++i) {
      full.push_back(static_cast<char>(i < 4 ? seq >> (8 * i) & 0xff : 0));
    }
    std::size_t shared = 0;
    if (count++ % 2 == 0) {
      restarts.push_back(static_cast<std::uint32_t>(block.size()));
    } else {
      while (shared < before.size() && before[shared] == full[shared]) {
        ++shared;
      }
    }
    block += static_cast<char>(shared);
    block += static_cast<char>(full.size() - shared);
    block += static_cast<char>(value.size());
    block += full.substr(shared) + value;
    before = full;
  };
  add("apple", 1, 5, "one");
  add("apricot", 1, 9, "new");
  add("apricot", 1, 4, "old");
  add("banana", 0, 8, "");
  add("banana", 1, 3, "deleted");
  add("cherry", 1, 7, "");
  add("plum", 1, 2, "last");
  for (const std::uint32_t at : restarts) {
    block.append(reinterpret_cast<const char*>(&at), 4);
  }
  const auto restart_count = static_cast<std::uint32_t>(restarts.size());
  block.append(reinterpret_cast<const char*>(&restart_count), 4);
  EXPECT_THAT(FindPut(block, "apple"), Optional(std::string_view("one")));
  EXPECT_THAT(FindPut(block, "apricot"), Optional(std::string_view("new")));
  EXPECT_EQ(FindPut(block, "banana"), std::nullopt);
  EXPECT_THAT(FindPut(block, "cherry"), Optional(std::string_view("")));
  EXPECT_THAT(FindPut(block, "plum"), Optional(std::string_view("last")));
  for (const char* key : {"", "a", "apples", "bananas", "zebra"}) {
    EXPECT_EQ(FindPut(block, key), std::nullopt) << key;
  }
  // Whatever the bytes are, nothing outside of them is read.
  for (std::size_t at = 0; at < block.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string odd = block;
      odd[at] = static_cast<char>(odd[at] ^ (1 << bit));
      for (const char* key : {"apple", "banana", "plum"}) {
        const auto found = FindPut(odd, key);
        if (!found.has_value()) continue;
        EXPECT_GE(found->data(), odd.data());
        EXPECT_LE(found->data() + found->size(), odd.data() + odd.size());
      }
    }
  }
  EXPECT_EQ(FindPut("", "apple"), std::nullopt);
  EXPECT_EQ(FindPut("abc", "apple"), std::nullopt);
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
