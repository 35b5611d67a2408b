// SPDX-License-Identifier: Apache-2.0

#include "core/array/small_type_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/array/leaf_statistics.h"

namespace ckptree {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kTileBytes = 64 << 10;

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

bool IsWide(DType dtype) { return BitWidth(dtype) >= 16; }

// The numbers of the formats' own documents.
TEST(SmallTypes, FloatsHaveTheirDocumentedRange) {
  struct Format {
    DType dtype;
    double max;
    double smallest_normal;
    double smallest;
    unsigned nans;
    unsigned infs;
  };
  const Format formats[] = {
      {DType::kFloat8E4m3fn, 448, 0x1p-6, 0x1p-9, 2, 0},
      {DType::kFloat8E5m2, 57344, 0x1p-14, 0x1p-16, 6, 2},
      {DType::kFloat8E4m3fnuz, 240, 0x1p-7, 0x1p-10, 1, 0},
      {DType::kFloat8E5m2fnuz, 57344, 0x1p-15, 0x1p-17, 1, 0},
      {DType::kFloat8E8m0fnu, 0x1p127, 0x1p-127, 0x1p-127, 1, 0},
      {DType::kFloat8E3m4, 15.5, 0x1p-2, 0x1p-6, 30, 2},
      {DType::kFloat8E4m3, 240, 0x1p-6, 0x1p-9, 14, 2},
      {DType::kFloat8E4m3b11fnuz, 30, 0x1p-10, 0x1p-13, 1, 0},
      {DType::kFloat6E2m3fn, 7.5, 1, 0.125, 0, 0},
      {DType::kFloat6E3m2fn, 28, 0.25, 0.0625, 0, 0},
      {DType::kFloat4E2m1fn, 6, 1, 0.5, 0, 0},
  };
  for (const Format& format : formats) {
    SCOPED_TRACE(Name(format.dtype));
    const unsigned codes = 1u << BitWidth(format.dtype);
    unsigned nans = 0;
    unsigned infs = 0;
    double max = 0;
    double smallest = kInfinity;
    bool has_normal = false;
    for (unsigned code = 0; code < codes; ++code) {
      const double value = SmallTypeValue(format.dtype, code);
      nans += std::isnan(value);
      infs += std::isinf(value);
      if (!std::isfinite(value)) continue;
      max = std::max(max, value);
      if (value > 0) smallest = std::min(smallest, value);
      has_normal |= value == format.smallest_normal;
    }
    EXPECT_EQ(nans, format.nans);
    EXPECT_EQ(infs, format.infs);
    EXPECT_EQ(max, format.max);
    EXPECT_EQ(smallest, format.smallest);
    EXPECT_TRUE(has_normal);
  }
  EXPECT_EQ(SmallTypeValue(DType::kFloat8E4m3fn, 0x39), 1.125);
  EXPECT_EQ(SmallTypeValue(DType::kFloat8E5m2, 0xc1), -2.5);
  EXPECT_EQ(SmallTypeValue(DType::kFloat4E2m1fn, 0xd), -3);
}

TEST(SmallTypes, IntegersAreSignExtendedFromTheirLowBits) {
  EXPECT_EQ(SmallTypeValue(DType::kInt4, 0x0f), -1);
  EXPECT_EQ(SmallTypeValue(DType::kInt4, 0xf8), -8);
  EXPECT_EQ(SmallTypeValue(DType::kUint4, 0xf8), 8);
  EXPECT_EQ(SmallTypeValue(DType::kInt2, 2), -2);
  EXPECT_EQ(SmallTypeValue(DType::kInt1, 1), -1);
  EXPECT_EQ(SmallTypeValue(DType::kUint1, 1), 1);
  EXPECT_EQ(SmallTypeValue(DType::kInt8, 0x80), -128);
  EXPECT_EQ(SmallTypeValue(DType::kUint8, 0x80), 128);
  EXPECT_EQ(SmallTypeValue(DType::kBool, 2), 1);
}

TEST(SmallTypes, EveryByteIsCountedWithItsValue) {
  for (const DType dtype : AllDTypes()) {
    if (IsWide(dtype)) continue;
    SCOPED_TRACE(Name(dtype));
    for (unsigned code = 0; code < 256; ++code) {
      const double value = SmallTypeValue(dtype, code);
      const Statistics got = ComputeStatistics(
          dtype, false, Bytes(1003, static_cast<std::byte>(code)));
      EXPECT_EQ(got.count, 1003u);
      EXPECT_EQ(got.nan, std::isnan(value) ? 1003u : 0u);
      EXPECT_EQ(got.inf, std::isinf(value) ? 1003u : 0u);
      EXPECT_EQ(got.zero, value == 0 ? 1003u : 0u);
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(got.min, value);
      EXPECT_EQ(got.max, value);
      EXPECT_EQ(got.sum, 1003 * value);
      EXPECT_EQ(got.sum_of_squares, 1003 * value * value);
    }
  }
}

TEST(SmallTypes, SumsOfManyTilesAreRight) {
  const Bytes bytes = RandomBytes(3 * kTileBytes + 77, 5);
  for (const DType dtype : AllDTypes()) {
    if (IsWide(dtype)) continue;
    SCOPED_TRACE(Name(dtype));
    const Statistics got = ComputeStatistics(dtype, false, bytes);
    long double sum = 0;
    long double squares = 0;
    for (const std::byte b : bytes) {
      const double x = SmallTypeValue(dtype, std::to_integer<unsigned>(b));
      if (!std::isfinite(x)) continue;
      sum += x;
      squares += static_cast<long double>(x) * x;
    }
    EXPECT_EQ(got.count, bytes.size());
    EXPECT_NEAR(got.sum, static_cast<double>(sum),
                1e-12 * static_cast<double>(std::sqrt(squares)) * 600);
    EXPECT_NEAR(got.sum_of_squares, static_cast<double>(squares),
                1e-12 * static_cast<double>(squares));
  }
}

TEST(SmallTypes, PackedElementsEqualTheSameUnpacked) {
  for (const DType dtype : AllDTypes()) {
    if (!IsSubByte(dtype)) continue;
    SCOPED_TRACE(Name(dtype));
    const auto bits = static_cast<std::size_t>(BitWidth(dtype));
    const std::size_t per_tile =
        (8 % bits != 0 ? kTileBytes / 3 * 3 : kTileBytes) * 8 / bits;
    for (const std::size_t elements :
         {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1001},
          per_tile, per_tile + 5}) {
      SCOPED_TRACE(elements);
      Bytes unpacked = RandomBytes(elements, 9);
      // The padding is ones, so that counting it would show.
      Bytes packed((elements * bits + 7) / 8, std::byte{0xff});
      for (std::size_t i = 0; i < elements; ++i) {
        for (std::size_t b = 0; b < bits; ++b) {
          const std::size_t at = i * bits + b;
          const auto bit = static_cast<std::byte>(1u << (at % 8));
          if ((std::to_integer<unsigned>(unpacked[i]) >> b & 1) == 0) {
            packed[at / 8] &= ~bit;
          }
        }
      }
      const Statistics got = ComputeStatistics(
          dtype, true, packed, static_cast<std::int64_t>(elements));
      const Statistics want = ComputeStatistics(dtype, false, unpacked);
      EXPECT_EQ(got.count, elements);
      EXPECT_EQ(got.zero, want.zero);
      EXPECT_EQ(got.min, want.min);
      EXPECT_EQ(got.max, want.max);
      // Exact: a few bits times at most 2^20.
      EXPECT_EQ(got.sum, want.sum);
      EXPECT_EQ(got.sum_of_squares, want.sum_of_squares);
      EXPECT_EQ(ComputeStatistics(dtype, true, packed).count,
                packed.size() * 8 / bits);
    }
  }
}

}  // namespace
}  // namespace ckptree
