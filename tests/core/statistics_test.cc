// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "core/array/leaf_statistics.h"
#include "tests/core/instruction_sets.h"

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

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
T At(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double Float16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value;
  if (exponent == 31) {
    value = mantissa != 0 ? std::nan("") : kInfinity;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return std::signbit(static_cast<float>(static_cast<std::int16_t>(bits)))
             ? -value
             : value;
}

// The parts of `bytes` in double, and how many bytes one takes.
std::vector<double> Parts(DType dtype, const Bytes& bytes, std::size_t* size) {
  const auto decode = [&](auto sample, auto convert) {
    using T = decltype(sample);
    *size = sizeof(T);
    std::vector<double> parts;
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      parts.push_back(convert(At<T>(bytes, i)));
    }
    return parts;
  };
  const auto plain = [](auto x) { return static_cast<double>(x); };
  switch (dtype) {
    case DType::kFloat16:
    case DType::kComplex32:
      return decode(std::uint16_t(), Float16);
    case DType::kBfloat16:
    case DType::kBcomplex32:
      return decode(std::uint16_t(), [](std::uint16_t x) {
        return static_cast<double>(
            std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16));
      });
    case DType::kFloat32:
    case DType::kComplex64:
      return decode(float(), plain);
    case DType::kFloat64:
    case DType::kComplex128:
      return decode(double(), plain);
    case DType::kInt16:
      return decode(std::int16_t(), plain);
    case DType::kInt32:
      return decode(std::int32_t(), plain);
    case DType::kInt64:
      return decode(std::int64_t(), plain);
    case DType::kUint16:
      return decode(std::uint16_t(), plain);
    case DType::kUint32:
      return decode(std::uint32_t(), plain);
    case DType::kUint64:
      return decode(std::uint64_t(), plain);
    default:
      ADD_FAILURE() << "not a wide type: " << Name(dtype);
      return {};
  }
}

// The contract of the header, in the plainest way.
Statistics Reference(DType dtype, const Bytes& bytes) {
  std::size_t size = 1;
  const std::vector<double> parts = Parts(dtype, bytes, &size);
  const std::size_t per_tile = kTileBytes / size;
  Statistics all;
  for (std::size_t first = 0; first < parts.size(); first += per_tile) {
    std::array<double, 16> sum = {};
    std::array<double, 16> squares = {};
    const std::size_t end = std::min(parts.size(), first + per_tile);
    for (std::size_t i = first; i < end; ++i) {
      const double x = parts[i];
      ++all.count;
      all.nan += std::isnan(x);
      all.inf += std::isinf(x);
      all.zero += x == 0;
      if (!std::isfinite(x)) continue;
      if (x < all.min) all.min = x;
      if (x > all.max) all.max = x;
      sum[(i - first) % 16] += x;
      const volatile double square = x * x;  // Never fused.
      squares[(i - first) % 16] += square;
    }
    for (std::size_t width : {8u, 4u, 2u, 1u}) {
      for (std::size_t i = 0; i < width; ++i) {
        sum[i] += sum[i + width];
        squares[i] += squares[i + width];
      }
    }
    all.sum += sum[0];
    all.sum_of_squares += squares[0];
  }
  all.min += 0.0;
  all.max += 0.0;
  if (std::isnan(all.sum)) all.sum = std::numeric_limits<double>::quiet_NaN();
  return all;
}

void ExpectEqual(const Statistics& got, const Statistics& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.nan, want.nan);
  EXPECT_EQ(got.inf, want.inf);
  EXPECT_EQ(got.zero, want.zero);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.min),
            std::bit_cast<std::uint64_t>(want.min))
      << got.min << " " << want.min;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.max),
            std::bit_cast<std::uint64_t>(want.max))
      << got.max << " " << want.max;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.sum),
            std::bit_cast<std::uint64_t>(want.sum))
      << got.sum << " " << want.sum;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.sum_of_squares),
            std::bit_cast<std::uint64_t>(want.sum_of_squares))
      << got.sum_of_squares << " " << want.sum_of_squares;
  EXPECT_TRUE(got == want);
}

bool IsWide(DType dtype) { return BitWidth(dtype) >= 16; }

TEST(LeafStatistics, WideTypesMatchTheReferenceOnEveryTarget) {
  // Around the lanes, the blocks and the tiles; bytes past an element too.
  const std::size_t lengths[] = {0,     1,     2,         7,      8,
                                 31,    64,    127,       256,    1000,
                                 4096,  4098,  8192 + 24, 65535,  65536,
                                 65537, 65552, 131072,    150001, 300000 + 16};
  for (const DType dtype : AllDTypes()) {
    if (!IsWide(dtype)) continue;
    SCOPED_TRACE(Name(dtype));
    for (const std::size_t length : lengths) {
      SCOPED_TRACE(length);
      const Bytes bytes = RandomBytes(length, static_cast<unsigned>(length));
      const Statistics want = Reference(dtype, bytes);
      OnEveryInstructionSet(
          [&] { ExpectEqual(ComputeStatistics(dtype, false, bytes), want); });
    }
  }
}

// Random bits are nearly always NaN, Inf or huge somewhere: finite tiles apart.
TEST(LeafStatistics, FiniteFloatsMatchTheReferenceOnEveryTarget) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0.01, 3);
  std::vector<float> floats(70'003);
  std::vector<double> doubles(30'011);
  std::vector<std::uint16_t> bfloats(100'003);
  std::vector<std::uint16_t> halves(100'003);
  for (float& x : floats) x = static_cast<float>(normal(random));
  for (double& x : doubles) x = normal(random);
  for (std::uint16_t& x : bfloats) {
    x = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(normal(random))) >> 16);
  }
  for (std::uint16_t& x : halves) {
    x = static_cast<std::uint16_t>(random()) & 0xbbff;  // Exponents to 14.
  }
  const auto check = [](DType dtype, const Bytes& bytes) {
    SCOPED_TRACE(Name(dtype));
    const Statistics want = Reference(dtype, bytes);
    EXPECT_EQ(want.nan + want.inf, 0u);
    OnEveryInstructionSet(
        [&] { ExpectEqual(ComputeStatistics(dtype, false, bytes), want); });
  };
  check(DType::kFloat32, BytesOf(floats));
  check(DType::kComplex64, BytesOf(floats));
  check(DType::kFloat64, BytesOf(doubles));
  check(DType::kBfloat16, BytesOf(bfloats));
  check(DType::kFloat16, BytesOf(halves));
}

TEST(LeafStatistics, EveryFloat16IsExact) {
  std::vector<std::uint16_t> one(1);
  std::vector<std::uint16_t> all;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    all.push_back(static_cast<std::uint16_t>(bits));
  }
  for (std::size_t i = 0; i < all.size(); i += 16) {
    for (const std::size_t n : {std::size_t{16}, std::size_t{5}}) {
      const Bytes bytes = BytesOf(std::vector<std::uint16_t>(
          all.begin() + static_cast<std::ptrdiff_t>(i),
          all.begin() + static_cast<std::ptrdiff_t>(i + n)));
      const Statistics want = Reference(DType::kFloat16, bytes);
      ASSERT_TRUE(ComputeStatistics(DType::kFloat16, false, bytes) == want)
          << i;
    }
  }
  OnEveryInstructionSet([&] {
    ExpectEqual(ComputeStatistics(DType::kFloat16, false, BytesOf(all)),
                Reference(DType::kFloat16, BytesOf(all)));
  });
}

TEST(LeafStatistics, UnalignedBytesGiveTheSameBits) {
  for (const DType dtype : AllDTypes()) {
    SCOPED_TRACE(Name(dtype));
    const Bytes bytes = RandomBytes(70'000, 3);
    const Statistics want = ComputeStatistics(dtype, false, bytes);
    Bytes moved(bytes.size() + 3);
    std::copy(bytes.begin(), bytes.end(), moved.begin() + 3);
    ExpectEqual(ComputeStatistics(dtype, false, std::span(moved).subspan(3)),
                want);
  }
}

TEST(LeafStatistics, CountsNanInfAndBothZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values(40, 1.0f);
  values[0] = nan;
  values[17] = -nan;
  values[18] = inf;
  values[39] = -inf;
  values[3] = 0.0f;
  values[4] = -0.0f;
  values[38] = -2.0f;
  OnEveryInstructionSet([&] {
    const Statistics got =
        ComputeStatistics(DType::kFloat32, false, BytesOf(values));
    EXPECT_EQ(got.count, 40u);
    EXPECT_EQ(got.nan, 2u);
    EXPECT_EQ(got.inf, 2u);
    EXPECT_EQ(got.zero, 2u);
    EXPECT_EQ(got.min, -2);
    EXPECT_EQ(got.max, 1);
    EXPECT_EQ(got.sum, 33 - 2);
    EXPECT_EQ(got.sum_of_squares, 33 + 4);
  });
}

TEST(LeafStatistics, MinusZeroAloneHasAPositiveMinimum) {
  for (const std::size_t n : {1u, 16u, 33u}) {
    const std::vector<float> values(n, -0.0f);
    OnEveryInstructionSet([&] {
      const Statistics got =
          ComputeStatistics(DType::kFloat32, false, BytesOf(values));
      EXPECT_EQ(got.zero, n);
      EXPECT_FALSE(std::signbit(got.min));
      EXPECT_FALSE(std::signbit(got.max));
      EXPECT_FALSE(std::signbit(got.sum));
    });
  }
}

// As torch.set_flush_denormal() sets it, or a library made with -ffast-math.
TEST(LeafStatistics, SubnormalsCountThoughTheProgramFlushesThem) {
#if defined(__SSE2__)
  std::vector<float> floats;
  std::vector<double> doubles;
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    floats.push_back(std::bit_cast<float>(i));
    doubles.push_back(std::bit_cast<double>(std::uint64_t{i}));
  }
  const Bytes of_them = BytesOf(doubles);
  const Statistics parts[2] = {
      ComputeStatistics(DType::kFloat64, false, of_them),
      ComputeStatistics(DType::kFloat64, false,
                        std::span<const std::byte>(of_them).subspan(8000))};
  Statistics merged = parts[1];
  merged.Merge(parts[0]);
  OnEveryInstructionSet([&] {
    const Statistics of_floats =
        ComputeStatistics(DType::kFloat32, false, BytesOf(floats));
    const Statistics of_doubles =
        ComputeStatistics(DType::kFloat64, false, BytesOf(doubles));
    EXPECT_EQ(of_floats.zero, 0u);
    EXPECT_GT(of_floats.min, 0);
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    volatile float smallest = floats.front();
    const bool is_flushed = smallest * 1.0F == 0.0F;
    const Statistics again =
        ComputeStatistics(DType::kFloat32, false, BytesOf(floats));
    const Statistics doubles_again =
        ComputeStatistics(DType::kFloat64, false, BytesOf(doubles));
    Statistics merged_again = parts[1];
    merged_again.Merge(parts[0]);
    const bool is_as_before = (__builtin_ia32_stmxcsr() & 0x8040) == 0x8040;
    __builtin_ia32_ldmxcsr(before);
    EXPECT_TRUE(is_flushed);
    EXPECT_TRUE(is_as_before);
    ExpectEqual(again, of_floats);
    ExpectEqual(doubles_again, of_doubles);
    ExpectEqual(merged_again, merged);
  });
#else
  GTEST_SKIP() << "no such flags are known of this processor";
#endif
}

TEST(LeafStatistics, NothingFiniteLeavesTheBoundsOpen) {
  const std::vector<float> values(20, std::numeric_limits<float>::infinity());
  const Statistics got =
      ComputeStatistics(DType::kFloat32, false, BytesOf(values));
  EXPECT_EQ(got.inf, 20u);
  EXPECT_EQ(got.min, kInfinity);
  EXPECT_EQ(got.max, -kInfinity);
  EXPECT_EQ(got.sum, 0);
}

TEST(LeafStatistics, DoublesThatOverflowAreNotCalledInf) {
  const std::vector<double> values(40, 1e308);
  const Statistics got =
      ComputeStatistics(DType::kFloat64, false, BytesOf(values));
  EXPECT_EQ(got.inf, 0u);
  EXPECT_EQ(got.max, 1e308);
  EXPECT_EQ(got.sum, kInfinity);
  EXPECT_EQ(got.sum_of_squares, kInfinity);
}

TEST(LeafStatistics, LargeIntegersRoundOnce) {
  const std::vector<std::uint64_t> unsigned_values = {
      std::numeric_limits<std::uint64_t>::max(), (1ull << 53) + 1, 0};
  const std::vector<std::int64_t> signed_values = {
      std::numeric_limits<std::int64_t>::min(),
      std::numeric_limits<std::int64_t>::max(), -1};
  OnEveryInstructionSet([&] {
    EXPECT_EQ(
        ComputeStatistics(DType::kUint64, false, BytesOf(unsigned_values)).max,
        0x1p64);
    EXPECT_EQ(
        ComputeStatistics(DType::kInt64, false, BytesOf(signed_values)).min,
        -0x1p63);
  });
}

TEST(LeafStatistics, EmptyInputIsEmpty) {
  for (const DType dtype : AllDTypes()) {
    ExpectEqual(ComputeStatistics(dtype, false, {}), Statistics());
    EXPECT_TRUE(HasStatistics(dtype));
  }
  EXPECT_FALSE(HasStatistics(DType::kNone));
  ExpectEqual(ComputeStatistics(DType::kNone, false, RandomBytes(8, 1)),
              Statistics());
}

TEST(LeafStatistics, EveryTargetOfThisMachineWasTried) {
  int targets = 0;
  OnEveryInstructionSet([&] { ++targets; });
  EXPECT_GE(targets, 1);
  RecordProperty("targets", targets);
}

}  // namespace
}  // namespace ckptree
