// SPDX-License-Identifier: Apache-2.0

// The coding of blocks: its bytes, what it saves, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "core/coding/block_coder.h"
#include "core/coding/block_decoder.h"
#include "core/coding/byte_planes.h"
#include "core/coding/coded_block.h"
#include "core/coding/rounded_copy.h"
#include "tests/core/instruction_sets.h"

namespace ckptree::internal {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Encoded(const Bytes& raw) {
  BlockCoder coder;
  return std::string(coder.Encode(raw, base::DigestOf(raw)));
}

// Values of a normal distribution, cut to `width` bytes from the top.
Bytes Floats(std::size_t bytes, std::size_t width, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.02);
  Bytes raw(bytes);
  for (std::size_t at = 0; at + width <= bytes; at += width) {
    const double value = normal(random);
    const auto word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (width == 8) {
      std::memcpy(raw.data() + at, &value, width);
    } else {
      const std::uint32_t top = word >> (32 - 8 * width);
      std::memcpy(raw.data() + at, &top, width);
    }
  }
  return raw;
}

Bytes Noise(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes raw(bytes);
  for (std::byte& b : raw) b = static_cast<std::byte>(random());
  return raw;
}

// How many planes of each kind a block has.
std::map<PlaneKind, int> KindsOf(std::string_view stored, std::size_t raw) {
  std::map<PlaneKind, int> kinds;
  const CodedHead head = DecodeCodedHead(stored, stored.size(), raw).value();
  for (std::size_t c = 0; c < head.cells.size(); ++c) {
    const std::size_t cell =
        CodedHeadBytes(BlockCoding::kPlanes, raw) + head.begin(c);
    for (int b = 0; b < head.width; ++b) {
      ++kinds[static_cast<PlaneKind>(
          stored[cell + static_cast<std::size_t>(b) * kPlaneHeadBytes])];
    }
  }
  return kinds;
}

void ExpectDecodes(std::string_view stored, const Bytes& raw) {
  BlockDecoder decoder;
  Bytes out(raw.size());
  ASSERT_TRUE(decoder.Decode(stored, out).ok())
      << decoder.Decode(stored, out).message();
  EXPECT_TRUE(out == raw);
  EXPECT_TRUE(IsCodedBlock(stored));
}

// 2048 words of two bytes: one byte of each is every value in turn, the other
// always the same.
Bytes GoldenWords() {
  Bytes raw;
  for (unsigned i = 0; i < 2048; ++i) {
    const unsigned rotated = 0x7e00u | ((i / 4 * 37 + i % 4 * 91) % 256);
    const unsigned word = (rotated >> 1 | rotated << 15) & 0xffff;
    raw.push_back(static_cast<std::byte>(word & 0xff));
    raw.push_back(static_cast<std::byte>(word >> 8));
  }
  return raw;
}

TEST(CodedBlockTest, HasTheBytesOfTheFormat) {
  const Bytes raw = GoldenWords();
  const std::string stored = Encoded(raw);
  ASSERT_EQ(stored.size(), 44u + 10 + 2048 + 1);
  EXPECT_EQ(absl::BytesToHexString(stored.substr(0, 24)),
            "0102011000001000" + base::DigestOf(raw).Hex());
  EXPECT_EQ(absl::BytesToHexString(stored.substr(24, 4)), "0000080b");
  EXPECT_EQ(base::ReadBig<std::uint64_t>(stored, 28),
            base::ChecksumOf(stored.substr(44)));
  EXPECT_EQ(base::ReadBig<std::uint64_t>(stored, 36),
            base::ChecksumOf(stored.substr(0, 36)));
  // Raw, 2048 bytes; one value, 1 byte; then they.
  EXPECT_EQ(absl::BytesToHexString(stored.substr(44, 14)),
            "00000008000100000001"
            "005bb611");
  EXPECT_EQ(stored.back(), '\x7e');
  EXPECT_EQ(base::DigestOf(stored).Hex(), "758fab37ced93990662b552edd9a713f");
  ExpectDecodes(stored, raw);
}

// Head and cells with their checksums.
std::string Block(CodedHead head, const std::vector<std::string>& cells) {
  head.cells.clear();
  std::string all;
  for (const std::string& cell : cells) {
    all += cell;
    head.cells.push_back(
        {static_cast<std::uint32_t>(all.size()), base::ChecksumOf(cell)});
  }
  return EncodeCodedHead(head) + all;
}

std::string Plane(int kind, std::uint32_t length) {
  std::string head(1, static_cast<char>(kind));
  base::AppendBig(length, &head);
  return head;
}

// A frame of zstd: 1000 times the same byte, in one block.
std::string Frame(char value) {
  return absl::HexStringToBytes("28b52ffd60e802431f00") + value;
}

CodedHead Head(int width, std::uint32_t raw_length) {
  CodedHead head;
  head.width = width;
  head.raw_length = raw_length;
  return head;
}

TEST(CodedBlockTest, DecodesFramesOfOtherCoders) {
  const std::string frame = Frame('x');
  const std::string cell =
      Plane(2, 11) + Plane(1, 1) + frame + "y" + "z";  // One byte is left.
  const std::string stored = Block(Head(2, 2001), {cell});
  Bytes raw(2001);
  BlockDecoder decoder;
  ASSERT_TRUE(decoder.Decode(stored, raw).ok())
      << decoder.Decode(stored, raw).message();
  EXPECT_EQ(Text(raw).substr(0, 4), "xyxy");
  EXPECT_EQ(Text(raw).substr(1997), "yxyz");
}

TEST(CodedBlockTest, RefusesWhatCannotBe) {
  BlockDecoder decoder;
  const auto refuse = [&](const std::string& stored, std::size_t raw_length,
                          std::string_view why) {
    Bytes raw(raw_length);
    const absl::Status status = decoder.Decode(stored, raw);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
  };
  const std::string good = Plane(0, 3) + Plane(0, 3) + "abcdef" + "g";
  // The head, with its checksum right.
  const auto with = [&](std::size_t at, char value) {
    std::string stored = Block(Head(2, 7), {good});
    stored[at] = value;
    const std::size_t end = CodedHeadBytes(BlockCoding::kPlanes, 7) - 8;
    std::string sum;
    base::AppendBig(base::ChecksumOf(std::string_view(stored).substr(0, end)),
                    &sum);
    return stored.replace(end, 8, sum);
  };
  Bytes seven(7);
  ASSERT_TRUE(decoder.Decode(with(0, 1), seven).ok());
  EXPECT_EQ(Text(seven), "adbecfg");
  refuse(with(0, 3), 7, "coding 3");
  refuse(with(1, 3), 7, "words of 3");
  refuse(with(1, 0), 7, "words of 0");
  refuse(with(2, 2), 7, "map 2");
  refuse(with(3, 15), 7, "cells of 2^15");
  refuse(with(7, 8), 7, "of 8 bytes, not 7");
  refuse(with(27, 9), 7, "too short for its planes");
  refuse(with(27, 18), 7, "its cells have");
  refuse(with(28, 1), 7, "cell 0: it is not what was written");
  refuse(good, 7, "too few");
  refuse("", 0, "too few");
  refuse(Block(Head(2, 7), {good, good}), 7, "its head");
  refuse(Block(Head(2, 7), {good}) + "x", 7, "its cells have");
  refuse(Block(Head(1, 70000), {Plane(1, 1) + "a"}), 70000, "too few");
  // Cells.
  refuse(Block(Head(2, 7), {Plane(0, 3) + Plane(0, 9) + "abcdefg"}), 7,
         "longer than it");
  refuse(Block(Head(2, 7), {Plane(0, 2) + Plane(0, 4) + "abcdefg"}), 7,
         "another length");
  refuse(Block(Head(2, 7), {Plane(0, 3) + Plane(1, 2) + "abcdeg"}), 7,
         "of one value");
  refuse(Block(Head(2, 7), {Plane(0, 3) + Plane(7, 3) + "abcdefg"}), 7,
         "kind 7");
  refuse(Block(Head(2, 7), {Plane(0, 3) + Plane(0, 3) + "abcdefgh"}), 7,
         "bytes of no plane");
  refuse(Block(Head(1, 999), {Plane(2, 11) + Frame('x')}), 999,
         "not of its plane");
  refuse(Block(Head(1, 1000), {Plane(2, 10) + Frame('x').substr(0, 10)}), 1000,
         "zstd says");
  refuse(Block(Head(1, 1000), {Plane(2, 3) + "abc"}), 1000, "not of its plane");
}

TEST(CodedBlockTest, EveryFlipIsMet) {
  const Bytes raw = Floats(3000, 2, 3);
  const std::string stored = Encoded(raw);
  ASSERT_FALSE(stored.empty());
  BlockDecoder decoder;
  Bytes out(raw.size());
  for (std::size_t at = 0; at < stored.size(); ++at) {
    std::string bad = stored;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(bad, out))) << at;
    EXPECT_FALSE(IsCodedBlock(bad)) << at;
  }
  for (std::size_t length = 0; length < stored.size(); length += 7) {
    EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(stored.substr(0, length), out)))
        << length;
  }
}

TEST(CodedBlockTest, ComesBackAsItWasWhateverItIs) {
  std::mt19937_64 random(5);
  std::map<PlaneKind, int> kinds;
  int coded = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t sizes[] = {1 + random() % 300, 60000 + random() % 9000,
                                 random() % 300000 + 1};
    const std::size_t bytes = sizes[round % 3];
    const std::size_t width = std::size_t{1} << random() % 4;
    Bytes raw = Floats(bytes, width, static_cast<unsigned>(round));
    switch (random() % 4) {
      case 0:  // Zeros in between.
        for (std::size_t i = 0; i < bytes; ++i) {
          if (i / 512 % 3 != 0) raw[i] = std::byte{0};
        }
        break;
      case 1:  // Few small integers.
        for (std::size_t i = 0; i < bytes; ++i) {
          raw[i] = static_cast<std::byte>(i % width == 0 ? random() % 7 : 0);
        }
        break;
      default:
        break;
    }
    const std::string stored = Encoded(raw);
    if (stored.empty()) continue;
    ++coded;
    EXPECT_LE(static_cast<double>(stored.size()),
              BlockCoder::kMostOfRaw * static_cast<double>(bytes));
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(ExpectDecodes(stored, raw));
    for (const auto& [kind, count] : KindsOf(stored, bytes)) {
      kinds[kind] += count;
    }
  }
  EXPECT_GE(coded, 100);
  EXPECT_EQ(kinds.size(), 3u);
}

TEST(CodedBlockTest, OneCellCanBeReadAlone) {
  const Bytes raw = Floats(5 * kCellBytes + 1001, 4, 8);
  const std::string stored = Encoded(raw);
  const auto head = DecodeCodedHead(stored, stored.size(), raw.size());
  ASSERT_TRUE(head.ok());
  ASSERT_EQ(head->cells.size(), 6u);
  const std::string_view cells = std::string_view(stored).substr(
      CodedHeadBytes(BlockCoding::kPlanes, raw.size()));
  BlockDecoder decoder;
  for (std::size_t c = 0; c < 6; ++c) {
    Bytes out(head->raw_bytes(c));
    ASSERT_TRUE(
        decoder
            .DecodeCells(*head, c, c + 1,
                         cells.substr(head->begin(c),
                                      head->cells[c].end - head->begin(c)),
                         out)
            .ok());
    EXPECT_TRUE(std::equal(out.begin(), out.end(),
                           raw.begin() + static_cast<long>(c * kCellBytes)));
  }
}

// The words and their rounded copy.
Bytes WithCopy(const Bytes& words) {
  Bytes both = words;
  both.resize(words.size() / 4 * 6);
  RoundWords(words, both.data() + words.size());
  return both;
}

TEST(RoundedCopyTest, IsTheNearestOfEachWord) {
  const auto rounded = [](std::uint32_t word) {
    Bytes words(4 * 37);  // More than a vector, and some that fill none.
    for (std::size_t i = 0; i < 37; ++i) {
      std::memcpy(words.data() + 4 * i, &word, 4);
    }
    const Bytes both = WithCopy(words);
    std::uint16_t first = 0;
    std::memcpy(&first, both.data() + words.size(), 2);
    for (std::size_t i = 1; i < 37; ++i) {
      EXPECT_EQ(std::memcmp(both.data() + words.size() + 2 * i, &first, 2), 0);
    }
    EXPECT_EQ(first, RoundedWord(word));
    return first;
  };
  EXPECT_EQ(rounded(0x3f800000), 0x3f80);
  EXPECT_EQ(rounded(0x3f807fff), 0x3f80);
  EXPECT_EQ(rounded(0x3f808000), 0x3f80);  // Between two: the even one.
  EXPECT_EQ(rounded(0x3f818000), 0x3f82);
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x80000000), 0x8000);
  EXPECT_EQ(rounded(0x00000001), 0x0000);
  EXPECT_EQ(rounded(0x00018000), 0x0002);
  EXPECT_EQ(rounded(0x7f7fffff), 0x7f80);  // To infinity.
  EXPECT_EQ(rounded(0xff800000), 0xff80);
  EXPECT_EQ(rounded(0x7fc00000), 0x7fc0);
  EXPECT_EQ(rounded(0x7f800001), 0x7fc0);  // Not to infinity.
  EXPECT_EQ(rounded(0xffffffff), 0xffff);
}

TEST(RoundedCopyTest, IsTheSameWithAllVectors) {
  const Bytes words = Noise(4 * 4099, 5);
  const Bytes both = WithCopy(words);
  OnEveryInstructionSet([&] { EXPECT_TRUE(WithCopy(words) == both); });
}

TEST(RoundedCopyTest, IsNotStored) {
  for (const std::size_t words : {200u, 16384u, 16385u, 50000u}) {
    SCOPED_TRACE(words);
    // Of values, and of words that are any.
    for (const Bytes& master :
         {Floats(4 * words, 4, 7), Noise(4 * words, 8), Bytes(4 * words)}) {
      const Bytes both = WithCopy(master);
      const std::string stored = Encoded(both);
      ASSERT_FALSE(stored.empty());
      EXPECT_LE(stored.size(), both.size() * 2 / 3 + 400);
      const auto head = DecodeCodedHead(stored, stored.size(), both.size());
      ASSERT_TRUE(head.ok()) << head.status().message();
      EXPECT_EQ(head->coding, BlockCoding::kRoundedCopy);
      EXPECT_EQ(head->digest, base::DigestOf(master));
      EXPECT_EQ(head->copy,
                base::DigestOf(std::span(both).subspan(master.size())));
      ExpectDecodes(stored, both);
      // What is only nearly the copy is stored.
      Bytes other = both;
      other.back() ^= std::byte{1};
      const std::string plain = Encoded(other);
      if (plain.empty()) continue;
      EXPECT_EQ(plain[0], 1);
      ExpectDecodes(plain, other);
    }
  }
}

TEST(RoundedCopyTest, HasTheBytesOfTheFormat) {
  // The words 0x3f808001 and more, whose lowest byte is any.
  Bytes words;
  for (unsigned i = 0; i < 2048; ++i) {
    const unsigned low = (i / 4 * 37 + i % 4 * 91) % 256;
    for (const unsigned byte : {low, 0x80u, 0x80u, 0x3fu}) {
      words.push_back(static_cast<std::byte>(byte));
    }
  }
  const Bytes both = WithCopy(words);
  const std::string stored = Encoded(both);
  EXPECT_EQ(absl::BytesToHexString(stored.substr(0, 8)), "0204011000003000");
  EXPECT_EQ(absl::BytesToHexString(stored.substr(8, 32)),
            base::DigestOf(words).Hex() +
                base::DigestOf(std::span(both).subspan(8192)).Hex());
  EXPECT_EQ(base::ReadBig<std::uint32_t>(stored, 40), stored.size() - 60);
  EXPECT_EQ(base::ReadBig<std::uint64_t>(stored, 44),
            base::ChecksumOf(stored.substr(60)));
  EXPECT_EQ(base::ReadBig<std::uint64_t>(stored, 52),
            base::ChecksumOf(stored.substr(0, 52)));
  EXPECT_EQ(base::DigestOf(stored).Hex(), "3cefd9535534970f4452dad585094669");
}

TEST(RoundedCopyTest, EveryFlipIsMet) {
  const Bytes both = WithCopy(Floats(3000, 4, 3));
  const std::string stored = Encoded(both);
  ASSERT_EQ(stored[0], 2);
  BlockDecoder decoder;
  Bytes out(both.size());
  for (std::size_t at = 0; at < stored.size(); ++at) {
    std::string bad = stored;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(bad, out))) << at;
    EXPECT_FALSE(IsCodedBlock(bad)) << at;
  }
  // Of bytes that are no words and their copy.
  CodedHead head = Head(2, 8);
  head.coding = BlockCoding::kRoundedCopy;
  Bytes eight(8);
  const absl::Status status =
      decoder.Decode(Block(head, {Plane(0, 2) + Plane(0, 2) + "abcd"}), eight);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no words of 4"));
}

TEST(BlockCoderTest, SavesWhatFloatsHaveToGive) {
  const auto ratio = [](const Bytes& raw) {
    return static_cast<double>(raw.size()) /
           static_cast<double>(Encoded(raw).size());
  };
  EXPECT_GE(ratio(Floats(1 << 20, 2, 1)), 1.48);
  EXPECT_GE(ratio(Floats(1 << 20, 4, 2)), 1.19);
  EXPECT_GE(ratio(Floats(1 << 20, 8, 3)), 1.08);
  BlockCoder coder;
  EXPECT_NEAR(coder.ShareBySample(Floats(1 << 20, 2, 1)), 1 / 1.5, 0.02);
  EXPECT_EQ(coder.ShareBySample({}), 1);
}

TEST(BlockCoderTest, LeavesWhatHasNothingToGive) {
  for (const std::size_t bytes : {1u, 64u, 4096u, 65536u, 300000u}) {
    EXPECT_EQ(Encoded(Noise(bytes, 1)), "") << bytes;
    BlockCoder coder;
    EXPECT_EQ(coder.ShareBySample(Noise(bytes, 1)), 1) << bytes;
  }
  EXPECT_EQ(Encoded(Bytes(20)), "");  // Its head would be longer.
  EXPECT_EQ(Encoded({}), "");
}

TEST(BytePlanesTest, AreTheSameOnEveryTarget) {
  const std::size_t counts[] = {0, 1, 2, 15, 31, 64, 100, 1000, 8192};
  const auto check = [&] {
    for (const int width : {1, 2, 4, 8}) {
      for (const std::size_t count : counts) {
        for (const bool rotate : {false, true}) {
          const auto size = static_cast<std::size_t>(width);
          const Bytes raw = Noise(count * size + 1, 4);
          Bytes split(count * size), merged(count * size);
          Planes<std::byte> planes = {};
          Planes<const std::byte> found = {};
          for (std::size_t b = 0; b < size; ++b) {
            found[b] = planes[b] = split.data() + b * count;
          }
          // Not at a multiple of anything.
          SplitPlanes(raw.data() + 1, count, width, rotate, planes);
          for (std::size_t i = 0; i < count; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, raw.data() + 1 + i * size, size);
            const std::uint64_t top = word >> (8 * size - 1) & 1;
            if (rotate) word = word << 1 | top;
            for (std::size_t b = 0; b < size; ++b) {
              ASSERT_EQ(split[b * count + i],
                        static_cast<std::byte>(word >> (8 * b) & 0xff));
            }
          }
          MergePlanes(found, count, width, rotate, merged.data());
          ASSERT_TRUE(
              std::equal(merged.begin(), merged.end(), raw.begin() + 1));
        }
      }
    }
  };
  OnEveryInstructionSet(check);
}

}  // namespace
}  // namespace ckptree::internal
