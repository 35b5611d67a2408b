// HEAD: what a slot rejects, which slot wins, what survives.

#include "kv/head.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/options.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::StatusIs;

HeadSlot Slot(std::uint64_t ordinal) {
  HeadSlot slot;
  slot.write_count = 9;
  slot.ordinal = ordinal;
  slot.hash.fill(0xab);
  slot.uuid.fill(0xcd);
  slot.incarnation = 3;
  slot.version_ceiling = 0x0102030405060708;
  slot.device = 11;
  slot.inode = 12;
  return slot;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Overwrite(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST(HeadSlotTest, RoundTrips) {
  const std::string bytes = EncodeHeadSlot(Slot(5));
  ASSERT_EQ(bytes.size(), kHeadSlotBytes);
  EXPECT_EQ(DecodeHeadSlot(bytes), Slot(5));
}

TEST(HeadSlotTest, LayoutIsFixed) {
  const std::string bytes = EncodeHeadSlot(Slot(5));
  EXPECT_EQ(bytes.substr(0, 8), "CKPTHEAD");
  EXPECT_EQ(bytes.substr(8, 20),
            std::string("\0\0\0\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x05", 20));
  EXPECT_EQ(bytes.substr(28, 16), std::string(16, '\xab'));
  EXPECT_EQ(bytes.substr(44, 16), std::string(16, '\xcd'));
  EXPECT_EQ(bytes.substr(60, 8), std::string("\0\0\0\0\0\0\0\x03", 8));
  EXPECT_EQ(bytes.substr(68, 8),
            std::string("\x01\x02\x03\x04\x05\x06\x07\x08", 8));
  EXPECT_EQ(bytes.substr(100), std::string(kHeadSlotBytes - 100, '\0'));
}

TEST(HeadSlotTest, EveryFlippedByteIsRejected) {
  const std::string whole = EncodeHeadSlot(Slot(5));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_EQ(DecodeHeadSlot(damaged), std::nullopt) << i;
  }
  EXPECT_EQ(DecodeHeadSlot(whole.substr(1)), std::nullopt);
  EXPECT_EQ(DecodeHeadSlot(whole.substr(0, 200)), std::nullopt);
  EXPECT_EQ(DecodeHeadSlot(""), std::nullopt);
}

TEST(HeadFileTest, NewestWholeSlotWins) {
  const testing::TempDir dir;
  const Options options;
  {
    ASSERT_OK_AND_ASSIGN(const auto head,
                         HeadFile::Create(options, dir.path(), Slot(1)));
    EXPECT_EQ(head->slot().write_count, 1);
    for (std::uint64_t ordinal = 2; ordinal <= 20; ++ordinal) {
      ASSERT_OK(head->Write(Slot(ordinal)));
      ASSERT_OK_AND_ASSIGN(const HeadSlot read,
                           HeadFile::Read(options, dir.path()));
      EXPECT_EQ(read.ordinal, ordinal);
      EXPECT_EQ(read.write_count, ordinal);
    }
  }
  const std::string path = dir / "HEAD";
  std::string content = Contents(path);
  ASSERT_EQ(content.size(), kHeadSlots * kHeadSlotBytes);
  // A torn write of the newest slot leaves the one before.
  content[20 % kHeadSlots * kHeadSlotBytes + 21] ^= 1;
  Overwrite(path, content);
  ASSERT_OK_AND_ASSIGN(const auto head, HeadFile::Open(options, dir.path()));
  EXPECT_EQ(head->slot().ordinal, 19);
  ASSERT_OK(head->Write(Slot(21)));
  ASSERT_OK_AND_ASSIGN(const HeadSlot read,
                       HeadFile::Read(options, dir.path()));
  EXPECT_EQ(read.ordinal, 21);
}

TEST(HeadFileTest, MissingAndDamagedDiffer) {
  const testing::TempDir dir;
  const Options options;
  EXPECT_THAT(HeadFile::Open(options, dir.path()),
              StatusIs(absl::StatusCode::kNotFound));
  Overwrite(dir / "HEAD", std::string(kHeadSlots * kHeadSlotBytes, 'x'));
  EXPECT_THAT(HeadFile::Open(options, dir.path()),
              StatusIs(absl::StatusCode::kDataLoss));
  Overwrite(dir / "HEAD", "");
  EXPECT_THAT(HeadFile::Read(options, dir.path()),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace ckptree::kv
