// SPDX-License-Identifier: Apache-2.0

#include "base/digest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest_kernel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::base {
namespace {

// The buffer of the self test that xxHash is published with.
std::string SanityBuffer(std::size_t size) {
  std::string buffer(size, '\0');
  std::uint64_t state = 2654435761u;
  for (char& byte : buffer) {
    byte = static_cast<char>(state >> 56);
    state *= 11400714785074694797u;
  }
  return buffer;
}

struct Vector {
  std::size_t length;
  const char* digest;
};

constexpr Vector kVectors[] = {
    {0, "99aa06d3014798d86001c324468d497f"},
    {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
    {6, "082afe0b8162d12a3e7039bdda43cfc6"},
    {12, "6e3efd8fc7802b18061a192713f69ad9"},
    {24, "0ce966e4678d37611e7044d28b1b901d"},
    {48, "a002ac4e5478227ef942219aed80f67b"},
    {81, "4952f58181ab00425e8bafb9f95fb803"},
    {222, "337e09641b948717f1aebd597cec6b3a"},
    {403, "1b6de21e332dd73dcdeb804d65c6dea4"},
    {512, "18d2d110dcc9bca1617e49599013cb6b"},
    {2048, "f736557fd47073a5dd59e2c3a5f038e0"},
    {2240, "ccb134fbfa7ce49d6e73a90539cf2948"},
    {2367, "e89c0f6ff369b427cb37aeb9e5d361ed"},
};

TEST(DigestTest, EqualsThePublishedVectors) {
  const std::string buffer = SanityBuffer(2367);
  for (const Vector& vector : kVectors) {
    const std::string_view content =
        std::string_view(buffer).substr(0, vector.length);
    EXPECT_EQ(DigestOf(content).Hex(), vector.digest) << vector.length;
    DigestStream stream;
    stream.Update(content);
    EXPECT_EQ(stream.Finish().Hex(), vector.digest) << vector.length;
  }
}

TEST(DigestTest, ChecksumOfNothingIsThePublishedOne) {
  EXPECT_EQ(ChecksumOf(""), 0x2d06800538d394c2u);
}

TEST(DigestTest, EveryKernelGivesTheSame) {
  const DigestKernels here = KernelsHere();
  ASSERT_GE(here.count, 1);
  EXPECT_EQ(&ChosenKernel(), here.kernels[here.count - 1]);
  const std::string buffer = SanityBuffer(70'000);
  std::vector<std::size_t> lengths = {69'999, 65'536, 4'096,
                                      1'025,  1'024,  1'023};
  for (std::size_t i = 0; i < 600; ++i) lengths.push_back(i);
  for (const std::size_t length : lengths) {
    // Unaligned on purpose.
    const char* data = buffer.data() + length % 7;
    if (length + 7 > buffer.size()) data = buffer.data();
    Digest expected;
    here.kernels[0]->digest(data, length, expected.bytes.data());
    const std::uint64_t checksum = here.kernels[0]->checksum(data, length);
    for (int i = 0; i < here.count; ++i) {
      const DigestKernel& kernel = *here.kernels[i];
      SCOPED_TRACE(kernel.name);
      Digest digest;
      kernel.digest(data, length, digest.bytes.data());
      EXPECT_EQ(digest, expected) << length;
      EXPECT_EQ(kernel.checksum(data, length), checksum) << length;
      const std::size_t cut = length / 3;
      EXPECT_EQ(kernel.checksum_of_pair(data, cut, data + cut, length - cut),
                checksum)
          << length;
      DigestState state;
      kernel.begin(&state);
      kernel.update(&state, data, cut);
      kernel.update(&state, data + cut, length - cut);
      kernel.finish(&state, digest.bytes.data());
      EXPECT_EQ(digest, expected) << length;
    }
  }
}

TEST(DigestTest, PiecesOfAnySizeGiveTheWhole) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const std::string buffer = SanityBuffer(20'000);
  for (int round = 0; round < 50; ++round) {
    DigestStream stream;
    std::string_view left = buffer;
    while (!left.empty()) {
      const std::size_t size =
          std::min<std::size_t>(random() % 900, left.size());
      stream.Update(left.substr(0, size));
      left.remove_prefix(size);
    }
    EXPECT_EQ(stream.Finish(), DigestOf(buffer)) << "seed " << kSeed;
  }
}

TEST(DigestTest, FinishLeavesTheStreamOpen) {
  DigestStream stream;
  stream.Update("abc");
  EXPECT_EQ(stream.Finish(), DigestOf("abc"));
  stream.Update("def");
  EXPECT_EQ(stream.Finish(), DigestOf("abcdef"));
  DigestStream moved = std::move(stream);
  EXPECT_EQ(moved.Finish(), DigestOf("abcdef"));
}

TEST(DigestTest, BytesAndViewAreInverse) {
  const Digest digest = DigestOf("x");
  EXPECT_EQ(Digest::FromBytes(digest.view()), digest);
  EXPECT_EQ(digest.view().size(), 16u);
}

}  // namespace
}  // namespace ckptree::base
