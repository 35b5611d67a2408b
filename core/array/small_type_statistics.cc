// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk that differs from its base.

#include "core/array/small_type_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace ckptree {
namespace {

constexpr std::size_t kTileBytes = 64 << 10;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What the codes at the top of a floating type's range mean.
enum class Special {
  kIeee,    // The top exponent: Inf, and NaN with a mantissa.
  kTopNan,  // All ones below the sign: NaN. No Inf.
  kFnuz,    // Only the code of minus zero: NaN. No Inf.
  kFinite,  // Neither.
};

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Special special;
};

double FloatValue(const FloatFormat& format, unsigned code) {
  const int bits = format.exponent_bits + format.mantissa_bits;
  const unsigned magnitude = code & ((1u << bits) - 1);
  const bool negative = ((code >> bits) & 1) != 0;
  const unsigned mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const unsigned exponent = magnitude >> format.mantissa_bits;
  const unsigned top_exponent = (1u << format.exponent_bits) - 1;
  switch (format.special) {
    case Special::kIeee:
      if (exponent != top_exponent) break;
      if (mantissa != 0) return kNan;
      return negative ? -kInfinity : kInfinity;
    case Special::kTopNan:
      if (magnitude == (1u << bits) - 1) return kNan;
      break;
    case Special::kFnuz:
      if (negative && magnitude == 0) return kNan;
      break;
    case Special::kFinite:
      break;
  }
  const unsigned implicit = exponent == 0 ? 0 : 1u << format.mantissa_bits;
  const int power = std::max(static_cast<int>(exponent), 1) - format.bias -
                    format.mantissa_bits;
  const double value =
      std::ldexp(static_cast<double>(implicit + mantissa), power);
  return negative ? -value : value;
}

// Counts of codes in one tile of bytes.
using ByteCounts = std::array<std::uint32_t, 256>;

// Four tables: a run of one value would otherwise wait for its own last
// increment.
ByteCounts CountBytes(std::span<const std::byte> bytes) {
  std::array<ByteCounts, 4> tables = {};
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    ++tables[0][word & 0xff];
    ++tables[1][(word >> 8) & 0xff];
    ++tables[2][(word >> 16) & 0xff];
    ++tables[3][(word >> 24) & 0xff];
    ++tables[0][(word >> 32) & 0xff];
    ++tables[1][(word >> 40) & 0xff];
    ++tables[2][(word >> 48) & 0xff];
    ++tables[3][word >> 56];
  }
  for (; i < bytes.size(); ++i) {
    ++tables[0][std::to_integer<unsigned>(bytes[i])];
  }
  for (std::size_t b = 0; b < tables[0].size(); ++b) {
    tables[0][b] += tables[1][b] + tables[2][b] + tables[3][b];
  }
  return tables[0];
}

// The elements of up to 3 packed bytes, `bits` each, the first lowest.
void CountPacked(std::span<const std::byte> bytes, unsigned bits,
                 std::size_t elements, ByteCounts* counts) {
  unsigned held = 0;
  unsigned held_bits = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    if (held_bits < bits) {
      held |= std::to_integer<unsigned>(bytes[next++]) << held_bits;
      held_bits += 8;
    }
    ++(*counts)[held & ((1u << bits) - 1)];
    held >>= bits;
    held_bits -= bits;
  }
}

// The codes of a tile of `elements` packed elements.
ByteCounts CountPackedTile(std::span<const std::byte> bytes, unsigned bits,
                           std::size_t elements) {
  ByteCounts counts = {};
  if (8 % bits != 0) {
    CountPacked(bytes, bits, elements, &counts);
    return counts;
  }
  const unsigned per_byte = 8 / bits;
  const std::size_t whole = elements / per_byte;
  const ByteCounts by_byte = CountBytes(bytes.first(whole));
  for (unsigned b = 0; b < 256; ++b) {
    for (unsigned i = 0; i < per_byte; ++i) {
      counts[(b >> (i * bits)) & ((1u << bits) - 1)] += by_byte[b];
    }
  }
  CountPacked(bytes.subspan(whole), bits, elements % per_byte, &counts);
  return counts;
}

using Values = std::array<double, 256>;

// Made once for all types: a small leaf costs less than its table.
const Values& ValuesOf(DType dtype) {
  static const auto* const tables = [] {
    auto* made = new std::map<DType, Values>;  // Never destroyed.
    for (const DType type : AllDTypes()) {
      if (BitWidth(type) > 8) continue;
      Values& values = (*made)[type];
      for (unsigned code = 0; code < values.size(); ++code) {
        values[code] = SmallTypeValue(type, code);
      }
    }
    return made;
  }();
  return tables->at(dtype);
}

Statistics OfCounts(const ByteCounts& counts, const Values& values) {
  Statistics result;
  for (std::size_t code = 0; code < counts.size(); ++code) {
    if (counts[code] == 0) continue;
    const double value = values[code];
    const double times = counts[code];
    result.count += counts[code];
    if (std::isnan(value)) {
      result.nan += counts[code];
      continue;
    }
    if (std::isinf(value)) {
      result.inf += counts[code];
      continue;
    }
    if (value == 0) result.zero += counts[code];
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    result.sum += times * value;
    result.sum_of_squares += times * (value * value);
  }
  return result;
}

}  // namespace

Statistics SmallTypeStatistics(DType dtype, bool packed,
                               std::span<const std::byte> elements,
                               std::optional<std::int64_t> element_count) {
  const auto bits = static_cast<unsigned>(BitWidth(dtype));
  const Values& values = ValuesOf(dtype);
  packed = packed && bits < 8;
  // Groups of 6-bit elements are 3 bytes.
  const std::size_t tile =
      packed && 8 % bits != 0 ? kTileBytes / 3 * 3 : kTileBytes;
  std::size_t left = std::numeric_limits<std::size_t>::max();
  if (packed && element_count.has_value()) {
    left = static_cast<std::size_t>(std::max<std::int64_t>(*element_count, 0));
  }
  Statistics all;
  for (std::size_t i = 0; i < elements.size(); i += tile) {
    const auto bytes = elements.subspan(i, std::min(tile, elements.size() - i));
    ByteCounts counts = {};
    if (packed) {
      const std::size_t now = std::min(bytes.size() * 8 / bits, left);
      counts = CountPackedTile(bytes, bits, now);
      left -= now;
    } else {
      // Codes that differ in ignored bits only have one place in the order.
      const ByteCounts by_byte = CountBytes(bytes);
      const unsigned mask = dtype == DType::kBool ? 0xff : (1u << bits) - 1;
      for (unsigned b = 0; b < 256; ++b) counts[b & mask] += by_byte[b];
    }
    all.Merge(OfCounts(counts, values));
  }
  return all;
}

double SmallTypeValue(DType dtype, unsigned code) {
  switch (dtype) {
    case DType::kBool:
      return code != 0 ? 1 : 0;
    case DType::kUint1:
    case DType::kUint2:
    case DType::kUint4:
    case DType::kUint8:
      return code & ((1u << BitWidth(dtype)) - 1);
    case DType::kInt1:
    case DType::kInt2:
    case DType::kInt4:
    case DType::kInt8: {
      const int bits = BitWidth(dtype);
      const int value = static_cast<int>(code & ((1u << bits) - 1));
      return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
    }
    case DType::kFloat8E4m3fn:
      return FloatValue({4, 3, 7, Special::kTopNan}, code);
    case DType::kFloat8E5m2:
      return FloatValue({5, 2, 15, Special::kIeee}, code);
    case DType::kFloat8E4m3fnuz:
      return FloatValue({4, 3, 8, Special::kFnuz}, code);
    case DType::kFloat8E5m2fnuz:
      return FloatValue({5, 2, 16, Special::kFnuz}, code);
    case DType::kFloat8E8m0fnu:  // An exponent alone: no sign, no zero.
      if ((code & 0xff) == 0xff) return kNan;
      return std::ldexp(1.0, static_cast<int>(code & 0xff) - 127);
    case DType::kFloat8E3m4:
      return FloatValue({3, 4, 3, Special::kIeee}, code);
    case DType::kFloat8E4m3:
      return FloatValue({4, 3, 7, Special::kIeee}, code);
    case DType::kFloat8E4m3b11fnuz:
      return FloatValue({4, 3, 11, Special::kFnuz}, code);
    case DType::kFloat6E2m3fn:
      return FloatValue({2, 3, 1, Special::kFinite}, code);
    case DType::kFloat6E3m2fn:
      return FloatValue({3, 2, 3, Special::kFinite}, code);
    case DType::kFloat4E2m1fn:
      return FloatValue({2, 1, 1, Special::kFinite}, code);
    default:
      return kNan;
  }
}

}  // namespace ckptree
