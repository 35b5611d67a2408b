// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk that differs from its base.
//
// This file is compiled once for each instruction set (foreach_target.h). What
// keeps the bits equal: sixteen lanes of double whatever the vector, products
// that are exact (elements of 24 bits and fewer) or never fused with the sum
// (-ffp-contract=off), and no operation whose result an instruction set may
// choose (a minimum of zeros, a minimum with NaN).

#include "core/array/leaf_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/instruction_set.h"
#include "base/plain_floats.h"
#include "core/array/small_type_statistics.h"

// Vectors whose length the compiler does not know cannot stand in an array.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/array/leaf_statistics.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Shared by all instruction sets.
#ifndef CKPTREE_CORE_LEAF_STATISTICS_CC_ONCE_
#define CKPTREE_CORE_LEAF_STATISTICS_CC_ONCE_

namespace ckptree {
namespace {

constexpr std::size_t kTileBytes = 64 << 10;
constexpr std::size_t kLanes = 16;
// Elements widened at a time: 8 or 16 KiB, which stay in the first cache.
constexpr std::size_t kBlock = 2048;

struct Tile {
  alignas(64) std::array<double, kLanes> sum = {};
  alignas(64) std::array<double, kLanes> squares = {};
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t zero = 0;
};

// What the elements are, or the parts of complex ones.
enum class Part {
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kInt16,
  kInt32,
  kInt64,
  kUint16,
  kUint32,
  kUint64,
};

// The function of one instruction set.
template <base::InstructionSets kSet>
struct Compiled;

}  // namespace
}  // namespace ckptree

#endif  // CKPTREE_CORE_LEAF_STATISTICS_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ckptree {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
constexpr std::size_t kWidth = hn::MaxLanes(Doubles());
constexpr std::size_t kVectors = kLanes / kWidth;
static_assert(kVectors * kWidth == kLanes);

HWY_INLINE hn::Vec<Doubles> LoadDoubles(const double* p) {
  return hn::LoadU(Doubles(), p);
}
HWY_INLINE hn::Vec<Doubles> LoadDoubles(const float* p) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), p));
}

template <class V>
HWY_INLINE V AddSquare(V x, V sum, float /*of*/) {
  return hn::MulAdd(x, x, sum);  // The square of 24 bits is exact: fuse freely.
}
template <class V>
HWY_INLINE V AddSquare(V x, V sum, double /*of*/) {
  return hn::Add(sum, hn::Mul(x, x));
}

// Adds `n` elements, of which the first belongs to lane 0. Without kMasked a
// NaN or Inf spoils the squares (and the rest): the caller looks for that.
template <bool kMasked, class T>
HWY_ATTR void AddBlock(const T* HWY_RESTRICT p, std::size_t n, Tile& tile) {
  const Doubles d;
  const hn::ScalableTag<T> dt;
  const hn::RebindToSigned<decltype(dt)> di;
  constexpr std::size_t kTs = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr T kInfinity = std::numeric_limits<T>::infinity();

  hn::Vec<Doubles> sum[kVectors];
  hn::Vec<Doubles> squares[kVectors];
#pragma GCC unroll 16
  for (std::size_t v = 0; v < kVectors; ++v) {
    sum[v] = hn::Load(d, tile.sum.data() + v * kWidth);
    squares[v] = hn::Load(d, tile.squares.data() + v * kWidth);
  }
  auto min = hn::Set(dt, kInfinity);
  auto max = hn::Set(dt, -kInfinity);
  auto zeros = hn::Zero(di);

  const std::size_t whole = n - n % kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) {
      auto x = LoadDoubles(p + i + v * kWidth);
      if constexpr (kMasked) x = hn::IfThenElseZero(hn::IsFinite(x), x);
      sum[v] = hn::Add(sum[v], x);
      squares[v] = AddSquare(x, squares[v], T());
    }
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kLanes; v += kTs) {
      const auto x = hn::LoadU(dt, p + i + v);
      zeros = hn::Sub(
          zeros, hn::BitCast(di, hn::VecFromMask(dt, hn::Eq(x, hn::Zero(dt)))));
      if constexpr (kMasked) {
        const auto finite = hn::IsFinite(x);
        min = hn::Min(min, hn::IfThenElse(finite, x, min));
        max = hn::Max(max, hn::IfThenElse(finite, x, max));
        tile.nan += hn::CountTrue(dt, hn::IsNaN(x));
        tile.inf += hn::CountTrue(dt, hn::IsInf(x));
      } else {
        min = hn::Min(min, x);
        max = hn::Max(max, x);
      }
    }
  }

#pragma GCC unroll 16
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(sum[v], d, tile.sum.data() + v * kWidth);
    hn::Store(squares[v], d, tile.squares.data() + v * kWidth);
  }
  alignas(64) T ends[2][kTs];
  alignas(64) hn::TFromD<decltype(di)> zero[kTs];
  hn::Store(min, dt, ends[0]);
  hn::Store(max, dt, ends[1]);
  hn::Store(zeros, di, zero);
  for (std::size_t i = 0; i < kTs; ++i) {
    tile.min = std::min(tile.min, static_cast<double>(ends[0][i]));
    tile.max = std::max(tile.max, static_cast<double>(ends[1][i]));
    tile.zero += static_cast<std::uint64_t>(zero[i]);
  }
  for (std::size_t i = whole; i < n; ++i) {
    T element;
    std::memcpy(&element, reinterpret_cast<const std::byte*>(p) + i * sizeof(T),
                sizeof(T));
    const double x = static_cast<double>(element);
    if constexpr (kMasked) {
      tile.nan += std::isnan(x);
      tile.inf += std::isinf(x);
      if (!std::isfinite(x)) continue;
    }
    const double square = x * x;
    tile.sum[i - whole] += x;
    tile.squares[i - whole] += square;
    tile.zero += x == 0;
    tile.min = std::min(tile.min, x);
    tile.max = std::max(tile.max, x);
  }
}

// One vector of elements as float or double, exact or rounded to nearest.
template <Part kPart, class D>
HWY_INLINE hn::Vec<D> Widen(D d, const std::byte* p) {
  if constexpr (kPart == Part::kBfloat16) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> dh;
    const auto bits = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  } else if constexpr (kPart == Part::kFloat16) {
    // Not the instruction: not every target has it, and its stand-in knows no
    // NaN. Normal: shift, and move the exponent from bias 15 to 127; the top
    // exponent moves on to 255. Subnormal: an integer times 2^-24.
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> dh;
    const auto bits = hn::PromoteTo(
        di, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p)));
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fff));
    const auto bias = hn::Set(di, 112 << 23);
    const auto top =
        hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x7bff)));
    const auto normal = hn::Add(hn::Add(hn::ShiftLeft<13>(magnitude), bias),
                                hn::And(top, bias));
    const auto small = hn::BitCast(
        di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
    const auto is_small = hn::Lt(magnitude, hn::Set(di, 0x400));
    const auto sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
    return hn::BitCast(d,
                       hn::Or(sign, hn::IfThenElse(is_small, small, normal)));
  } else if constexpr (kPart == Part::kInt16) {
    const hn::Rebind<std::int16_t, D> dh;
    const hn::RebindToSigned<D> di;
    const auto x = hn::LoadU(dh, reinterpret_cast<const std::int16_t*>(p));
    return hn::ConvertTo(d, hn::PromoteTo(di, x));
  } else if constexpr (kPart == Part::kUint16) {
    const hn::Rebind<std::uint16_t, D> dh;
    const hn::RebindToSigned<D> di;
    const auto x = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p));
    return hn::ConvertTo(d, hn::PromoteTo(di, x));
  } else if constexpr (kPart == Part::kInt32) {
    const hn::Rebind<std::int32_t, D> dh;
    return hn::PromoteTo(
        d, hn::LoadU(dh, reinterpret_cast<const std::int32_t*>(p)));
  } else if constexpr (kPart == Part::kUint32) {
    // The bits of 2^52 + x, less 2^52.
    const hn::Rebind<std::uint32_t, D> dh;
    const hn::RebindToUnsigned<D> du;
    const auto x = hn::PromoteTo(
        du, hn::LoadU(dh, reinterpret_cast<const std::uint32_t*>(p)));
    const auto biased = hn::Or(x, hn::BitCast(du, hn::Set(d, 0x1p52)));
    return hn::Sub(hn::BitCast(d, biased), hn::Set(d, 0x1p52));
  } else {
    // The upper half as 2^84 + upper * 2^32 and the lower as 2^52 + lower; only
    // the last addition rounds. Signed: an upper half biased by 2^31.
    constexpr bool kSigned = kPart == Part::kInt64;
    constexpr double kBias = 0x1p84 + 0x1p52 + (kSigned ? 0x1p63 : 0.0);
    const hn::RebindToUnsigned<D> du;
    auto x = hn::LoadU(du, reinterpret_cast<const std::uint64_t*>(p));
    if constexpr (kSigned) {
      x = hn::Xor(x, hn::Set(du, std::uint64_t{1} << 63));
    }
    const auto upper =
        hn::Or(hn::ShiftRight<32>(x), hn::BitCast(du, hn::Set(d, 0x1p84)));
    const auto lower =
        hn::Or(hn::And(x, hn::Set(du, std::uint64_t{0xffffffff})),
               hn::BitCast(du, hn::Set(d, 0x1p52)));
    return hn::Add(hn::Sub(hn::BitCast(d, upper), hn::Set(d, kBias)),
                   hn::BitCast(d, lower));
  }
}

template <bool kMasked, Part kPart, class T>
HWY_ATTR void AddWidened(const std::byte* p, std::size_t n, Tile& tile) {
  constexpr bool kHalf = sizeof(T) == 4;
  constexpr std::size_t kBytes =
      kHalf ? 2 : (kPart == Part::kInt64 || kPart == Part::kUint64 ? 8 : 4);
  const hn::ScalableTag<T> dt;
  constexpr std::size_t kTs = hn::MaxLanes(hn::ScalableTag<T>());
  static_assert(kBlock % kTs == 0);
  alignas(64) T wide[kBlock];
  while (n > 0) {
    const std::size_t now = std::min(n, kBlock);
    std::size_t i = 0;
    for (; i + kTs <= now; i += kTs) {
      hn::Store(Widen<kPart>(dt, p + i * kBytes), dt, wide + i);
    }
    if (i < now) {
      alignas(64) std::byte last[kTs * kBytes] = {};
      std::memcpy(last, p + i * kBytes, (now - i) * kBytes);
      hn::Store(Widen<kPart>(dt, last), dt, wide + i);
    }
    AddBlock<kMasked>(wide, now, tile);
    p += now * kBytes;
    n -= now;
  }
}

template <bool kMasked>
HWY_ATTR void AddPart(Part part, const std::byte* p, std::size_t n,
                      Tile& tile) {
  switch (part) {
    case Part::kFloat32:
      return AddBlock<kMasked>(reinterpret_cast<const float*>(p), n, tile);
    case Part::kFloat64:
      return AddBlock<kMasked>(reinterpret_cast<const double*>(p), n, tile);
    case Part::kFloat16:
      return AddWidened<kMasked, Part::kFloat16, float>(p, n, tile);
    case Part::kBfloat16:
      return AddWidened<kMasked, Part::kBfloat16, float>(p, n, tile);
    case Part::kInt16:
      return AddWidened<kMasked, Part::kInt16, float>(p, n, tile);
    case Part::kUint16:
      return AddWidened<kMasked, Part::kUint16, float>(p, n, tile);
    case Part::kInt32:
      return AddWidened<kMasked, Part::kInt32, double>(p, n, tile);
    case Part::kUint32:
      return AddWidened<kMasked, Part::kUint32, double>(p, n, tile);
    case Part::kInt64:
      return AddWidened<kMasked, Part::kInt64, double>(p, n, tile);
    case Part::kUint64:
      return AddWidened<kMasked, Part::kUint64, double>(p, n, tile);
  }
}

// The statistics of one tile. A square of a finite float is finite in double,
// so squares tell whether the quick pass met NaN or Inf; for doubles they may
// also overflow, which costs a second pass with the same result.
void AddTile(Part part, const std::byte* p, std::size_t n, Tile& tile) {
  AddPart</*kMasked=*/false>(part, p, n, tile);
  if (std::all_of(tile.squares.begin(), tile.squares.end(),
                  [](double x) { return std::isfinite(x); })) {
    return;
  }
  tile = Tile();
  AddPart</*kMasked=*/true>(part, p, n, tile);
}

}  // namespace HWY_NAMESPACE

template <>
struct Compiled<HWY_TARGET> {
  static constexpr auto kFunctions = &HWY_NAMESPACE::AddTile;
};

}  // namespace
}  // namespace ckptree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ckptree {
namespace {

std::optional<Part> PartOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kComplex32:
      return Part::kFloat16;
    case DType::kBfloat16:
    case DType::kBcomplex32:
      return Part::kBfloat16;
    case DType::kFloat32:
    case DType::kComplex64:
      return Part::kFloat32;
    case DType::kFloat64:
    case DType::kComplex128:
      return Part::kFloat64;
    case DType::kInt16:
      return Part::kInt16;
    case DType::kInt32:
      return Part::kInt32;
    case DType::kInt64:
      return Part::kInt64;
    case DType::kUint16:
      return Part::kUint16;
    case DType::kUint32:
      return Part::kUint32;
    case DType::kUint64:
      return Part::kUint64;
    default:
      return std::nullopt;
  }
}

std::size_t PartBytes(Part part) {
  switch (part) {
    case Part::kFloat16:
    case Part::kBfloat16:
    case Part::kInt16:
    case Part::kUint16:
      return 2;
    case Part::kFloat32:
    case Part::kInt32:
    case Part::kUint32:
      return 4;
    case Part::kFloat64:
    case Part::kInt64:
    case Part::kUint64:
      return 8;
  }
  return 1;
}

double Fold(std::array<double, kLanes> lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

Statistics OfParts(Part part, std::span<const std::byte> elements) {
  const std::size_t part_bytes = PartBytes(part);
  const auto add_tile =
      base::BestOf<Compiled, HWY_TARGETS>(base::UsedInstructionSets());
  Statistics all;
  for (std::size_t i = 0; i < elements.size(); i += kTileBytes) {
    const std::size_t n =
        std::min(kTileBytes, elements.size() - i) / part_bytes;
    Tile tile;
    add_tile(part, elements.data() + i, n, tile);
    Statistics one;
    one.count = n;
    one.nan = tile.nan;
    one.inf = tile.inf;
    one.zero = tile.zero;
    one.min = tile.min;
    one.max = tile.max;
    one.sum = Fold(tile.sum);
    one.sum_of_squares = Fold(tile.squares);
    all.Merge(one);
  }
  return all;
}

}  // namespace

Statistics ComputeStatistics(DType dtype, bool packed,
                             std::span<const std::byte> elements,
                             std::optional<std::int64_t> element_count) {
  if (!HasStatistics(dtype)) return {};
  const base::PlainFloats plain;
  const std::optional<Part> part = PartOf(dtype);
  Statistics result =
      part.has_value()
          ? OfParts(*part, elements)
          : SmallTypeStatistics(dtype, packed, elements, element_count);
  // Which zero a minimum picks, and the sign of a new NaN, differ by machine.
  result.min += 0.0;
  result.max += 0.0;
  if (std::isnan(result.sum)) {
    result.sum = std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

bool HasStatistics(DType dtype) { return IsKnown(dtype); }

}  // namespace ckptree
#endif  // HWY_ONCE
