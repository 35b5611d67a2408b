// SPDX-License-Identifier: Apache-2.0

// What is found in a table beside damage anywhere in it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/rocks/segment_table.h"
#include "kv/rocks/table_parts.h"
#include "tests/kv/index_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::FlipByte;
using schema::Space;
using ::testing::IsEmpty;

class TableDamageTest : public IndexRebuildTest {
 protected:
  // The table of `space`, its bytes, and where its values stand in it.
  void Look(Space space) {
    space_ = space;
    values_.clear();
    const Model& model = models_[space];
    const std::string path = TableWith(model.rbegin()->second);
    bytes_ = ReadAll(path);
    for (const auto& [key, value] : model) {
      values_[key] = {bytes_.find(value), value.size()};
      ASSERT_NE(values_[key].first, std::string::npos);
    }
    path_ = dir_ / "table.sst";
  }

  // With [begin, end) of the table changed, everything is found that does not
  // stand there.
  void ExpectFound(const std::string& damaged, std::size_t begin,
                   std::size_t end) {
    SCOPED_TRACE(absl::StrFormat("[%d, %d)", begin, end));
    WriteAll(path_, damaged);
    auto table = SegmentTable::Open(options_, path_, SpaceOf);
    ASSERT_OK(table.status());
    ASSERT_EQ(table->space(), space_);
    ASSERT_OK_AND_ASSIGN(const auto* records, table->Records());
    Model found;
    std::size_t proven = 0;
    for (const FoundRecord& record : *records) {
      if (record.proven) ++proven;
      if (!found.contains(record.key) || record.proven) {
        ASSERT_OK_AND_ASSIGN(found[record.key], table->Read(record));
      }
    }
    for (const auto& [key, value] : models_[space_]) {
      const auto [at, size] = values_[key];
      if (at < end && begin < at + size) continue;
      EXPECT_TRUE(found.contains(key) && found[key] == value)
          << "block at " << at << " of " << bytes_.size();
    }
    // Beside them there may be what looks like a record, and is not proven.
    EXPECT_LE(proven, most_);
  }

  // Every bit on its own, then sectors.
  void ExpectFoundBesideAnyDamage() {
    auto whole = SegmentTable::Open(options_, path_, SpaceOf);
    WriteAll(path_, bytes_);
    whole = SegmentTable::Open(options_, path_, SpaceOf);
    ASSERT_OK(whole.status());
    most_ = whole->Records().value()->size();
    for (std::size_t at = 0; at < bytes_.size() && !HasFailure(); ++at) {
      std::string damaged = bytes_;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      ExpectFound(damaged, at, at + 1);
    }
    for (const std::size_t sector : {512u, 4096u}) {
      for (std::size_t at = 0; at < bytes_.size() && !HasFailure();
           at += sector) {
        const std::size_t end = std::min(at + sector, bytes_.size());
        for (const std::string& with :
             {std::string(end - at, '\0'), Noise(at, end - at)}) {
          std::string damaged = bytes_;
          damaged.replace(at, end - at, with);
          // Of a table that is one sector nothing is left.
          if (end - at + 200 < bytes_.size()) ExpectFound(damaged, at, end);
        }
      }
    }
  }

  Space space_ = Space::kChunks;
  std::string path_;
  std::string bytes_;
  std::size_t most_ = 0;
  std::map<std::string, std::pair<std::size_t, std::size_t>> values_;
};

TEST_F(TableDamageTest, OfChunks) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 12, 650));
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Look(Space::kChunks));
  ExpectFoundBesideAnyDamage();
}

TEST_F(TableDamageTest, OfLargeChunks) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 6, 9000));
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Look(Space::kChunks));
  most_ = 20;
  // Around every border, where blocks meet, and behind the last.
  for (const auto& [key, place] : values_) {
    for (const std::size_t from : {place.first, place.first + place.second}) {
      for (std::size_t at = from < 150 ? 0 : from - 150;
           at < std::min(from + 150, bytes_.size()) && !HasFailure(); ++at) {
        std::string damaged = bytes_;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
        ExpectFound(damaged, at, at + 1);
      }
    }
  }
  for (std::size_t at = 0; at < bytes_.size() && !HasFailure(); at += 512) {
    for (const std::size_t size : {512u, 4096u}) {
      const std::size_t end = std::min(at + size, bytes_.size());
      std::string damaged = bytes_;
      damaged.replace(at, end - at, std::string(end - at, '\0'));
      ExpectFound(damaged, at, end);
    }
  }
}

TEST_F(TableDamageTest, OfLeaves) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, 1, 20, 60));
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Look(Space::kLeaves));
  ExpectFoundBesideAnyDamage();
}

TEST_F(TableDamageTest, OfSmall) {
  ASSERT_NO_FATAL_FAILURE(SaveSmall(1, 8, 900));
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Look(Space::kSmall));
  ExpectFoundBesideAnyDamage();
}

// A byte of the metaindex that somebody changed, with the checksum that it has
// then: an error or another answer, and no end of the process.
TEST_F(TableDamageTest, AForgedMetaindexHarmsNobody) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 12, 650));
  ASSERT_NO_FATAL_FAILURE(Close());
  ASSERT_NO_FATAL_FAILURE(Look(Space::kChunks));
  // The footer has 53 bytes: the kind of checksum, and where the metaindex is.
  const auto place =
      BlockReader(std::string_view(bytes_).substr(bytes_.size() - 52)).Place();
  ASSERT_TRUE(place.has_value());
  const BlockPlace block = *place;
  int damaged = 0;
  for (std::uint64_t i = 0; i < block.size; ++i) {
    for (const int value : {0, 1, 3, 127, 128, 255}) {
      std::string forged = bytes_;
      forged[block.offset + i] = static_cast<char>(value);
      const std::uint32_t checksum = BlockChecksum(
          std::string_view(forged).substr(block.offset, block.size),
          forged[block.offset + block.size]);
      for (std::size_t k = 0; k < 4; ++k) {
        forged[block.offset + block.size + 1 + k] =
            static_cast<char>(checksum >> (8 * k));
      }
      WriteAll(path_, forged);
      const auto table = SegmentTable::Open(options_, path_, SpaceOf);
      if (!table.ok() || !table->damage().ok()) ++damaged;
    }
  }
  EXPECT_GT(damaged, 100);
}

TEST_F(TableDamageTest, ATableWithADamagedFrameIsWrittenAnew) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 12, 650));
  ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, 2, 60, 60));
  ASSERT_NO_FATAL_FAILURE(SaveSmall(3, 8, 900));
  ASSERT_NO_FATAL_FAILURE(Close());
  const std::string keep = dir_ / "keep";
  fs::copy(Store(), keep, fs::copy_options::recursive);
  for (const Space space : {Space::kChunks, Space::kLeaves, Space::kSmall}) {
    ASSERT_NO_FATAL_FAILURE(Look(space));
    // The first block's head, the last one's end, the index, properties,
    // metaindex and footer.
    const std::size_t size = bytes_.size();
    const auto [last, last_size] = values_.rbegin()->second;
    const std::size_t end = last + last_size;
    for (const std::size_t at :
         {std::size_t{1}, std::size_t{10}, end + 3, end + 10, end + 100,
          (end + size) / 2, size - 80, size - 50, size - 30, size - 1}) {
      SCOPED_TRACE(at);
      fs::remove_all(Store());
      fs::copy(keep, Store(), fs::copy_options::recursive);
      FlipByte(TableWith(bytes_.substr(200, 50)), at);
      RebuildReport report;
      ASSERT_NO_FATAL_FAILURE(Swap(&report));
      EXPECT_THAT(report.losses, IsEmpty());
      ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
      ASSERT_OK(database_->Close());
      database_.reset();
    }
  }
}

}  // namespace
}  // namespace ckptree::kv
