// SPDX-License-Identifier: Apache-2.0

// Building segments: order, limits, alignment, what is left behind.

#include "kv/segment_writer.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/rocks/segment_layout.h"
#include "schema/keys.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::StatusIs;
using schema::Space;

class SegmentWriterTest : public KvTest {
 protected:
  absl::StatusOr<std::unique_ptr<SegmentWriter>> Writer(
      Space space = Space::kChunks, std::uint64_t expected_bytes = 0) {
    return SegmentWriter::Create(options_, space, Path(), expected_bytes);
  }
  std::string Path() const { return dir_ / "segment.sst"; }
  static std::string Contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(SegmentWriterTest, PayloadsAreAlignedInTheFileAndInTheMapping) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  std::mt19937_64 random(20260101);
  std::vector<std::string> payloads;
  for (int i = 0; i < 200; ++i) {
    // Around every length at which a varint grows, and some long ones.
    const std::size_t bytes =
        i < 150   ? static_cast<std::size_t>(i)
        : i < 190 ? 16384 - 300 + random() % 600
        : i % 2   ? 300000 + random() % 100000
                  : SegmentWriter::kLargeValue + random() % 100000;
    std::string payload(bytes, '\0');
    for (char& byte : payload) byte = static_cast<char>(random());
    payloads.push_back(std::move(payload));
  }
  ASSERT_OK_AND_ASSIGN(const auto writer, Writer());
  ASSERT_OK(writer->Add(ChunkKey(0, 0), "header"));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    ASSERT_OK(
        writer->AddAligned(ChunkKey(1, static_cast<int>(i)), payloads[i]));
    // An unaligned record between them shifts the next one.
    if (i % 7 == 0) {
      ASSERT_OK(writer->Add(ChunkKey(1, static_cast<int>(i)) + "x",
                            std::string(i, 'q')));
    }
  }
  ASSERT_OK_AND_ASSIGN(const StagedSegment staged, writer->Finish());
  EXPECT_EQ(staged.first_key, ChunkKey(0, 0));
  EXPECT_EQ(staged.file_bytes, std::filesystem::file_size(Path()));
  const std::string file = Contents(Path());
  std::size_t at = 0;
  int large = 0;
  for (const std::string& payload : payloads) {
    if (payload.size() < 16) continue;  // Too short to be found by itself.
    at = file.find(payload, at);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(at % 64, 0);
    if (payload.size() >= SegmentWriter::kLargeValue) {
      EXPECT_EQ(at % 4096, 0);
      ++large;
    }
  }
  EXPECT_EQ(large, 5);
  ASSERT_OK(database->Adopt({staged}));
  EXPECT_FALSE(std::filesystem::exists(Path()));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(
        const Value view,
        database->View(Space::kChunks, ChunkKey(1, static_cast<int>(i))));
    const std::string_view payload = view.view();
    EXPECT_EQ(payload, payloads[i]) << i;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.data()) % 64, 0) << i;
  }
}

// What `verify` takes for a gap is what the writer makes.
static_assert(kMostGapBytes == schema::kMostGapBytes);

// Wherever a block ends, the value of the next one is aligned.
TEST(SegmentGapTest, EachPlaceHasItsGap) {
  constexpr std::uint64_t kKey = 15, kBefore = 29;
  for (const std::uint64_t alignment :
       {std::uint64_t{64}, std::uint64_t{4096}}) {
    for (std::uint64_t offset = 0; offset < 2 * alignment; ++offset) {
      const std::uint64_t zeros = GapBytes(alignment, offset, kKey, kBefore);
      ASSERT_LE(zeros, kMostGapBytes);
      ASSERT_EQ((offset + BytesBefore(kKey, zeros) + zeros + kBlockTailBytes +
                 kBefore) %
                    alignment,
                0)
          << offset;
    }
  }
}

TEST_F(SegmentWriterTest, AGapNeedsAKey) {
  ASSERT_OK_AND_ASSIGN(const auto writer, Writer());
  EXPECT_THAT(writer->AddAligned("a", "1"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(writer->Add("a", "1"));
  const std::string gap("a\0", 2);
  EXPECT_THAT(writer->AddAligned(gap, "1"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(writer->AddAligned("b", "1"));
  EXPECT_OK(writer->Finish());
}

TEST_F(SegmentWriterTest, RefusesWhatTheFileCannotHold) {
  ASSERT_OK_AND_ASSIGN(const auto writer, Writer());
  EXPECT_THAT(writer->Finish(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(writer->Add("b", "1"));
  EXPECT_THAT(writer->Add("b", "2"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer->AddAligned("a", "2"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer->Add("c", std::string((64 << 20) + 1, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(writer->Add("c", std::string(64 << 20, 'x')));
  EXPECT_OK(writer->Finish());
  EXPECT_THAT(writer->Add("d", "3"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Writer(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(SegmentWriter::Create(options_, Space::kRecords, dir_ / "x", 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SegmentWriterTest, ReservesAndGivesBack) {
  {
    const mode_t before = umask(027);
    const absl::Cleanup restore = [before] { umask(before); };
    ASSERT_OK_AND_ASSIGN(const auto writer, Writer(Space::kLeaves, 8 << 20));
    struct stat status;
    ASSERT_EQ(stat(Path().c_str(), &status), 0);
    EXPECT_GE(status.st_blocks * 512, 8 << 20);
    EXPECT_EQ(status.st_mode & 0777, 0640);
    ASSERT_OK(writer->Add("a", "1"));
    ASSERT_OK(writer->Finish());
    ASSERT_EQ(stat(Path().c_str(), &status), 0);
    EXPECT_LT(status.st_blocks * 512, 64 << 10);
  }
  std::filesystem::remove(Path());
  // More than any disk has.
  EXPECT_THAT(Writer(Space::kChunks, std::uint64_t{1} << 50),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(SegmentWriterTest, AnUnfinishedFileIsRemoved) {
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, Writer());
    ASSERT_OK(writer->Add("a", "1"));
    EXPECT_TRUE(std::filesystem::exists(Path()));
  }
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

}  // namespace
}  // namespace ckptree::kv
