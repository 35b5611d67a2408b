// SPDX-License-Identifier: Apache-2.0

// Hot path: per byte coded and decoded. Compiled once for each instruction set
// (foreach_target.h); all give the same bytes.

#include "core/coding/byte_planes.h"

#include <cstdint>
#include <cstring>

#include "base/instruction_set.h"

// Vectors whose length the compiler does not know cannot stand in an array.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/coding/byte_planes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Shared by all instruction sets.
#ifndef CKPTREE_CORE_BYTE_PLANES_CC_ONCE_
#define CKPTREE_CORE_BYTE_PLANES_CC_ONCE_

namespace ckptree::internal {
namespace {

struct Functions {
  void (*split)(const std::byte* words, std::size_t count, int width,
                bool rotate, const Planes<std::byte>& planes);
  void (*merge)(const Planes<const std::byte>& planes, std::size_t count,
                int width, bool rotate, std::byte* words);
};

// Those of one instruction set.
template <base::InstructionSets kSet>
struct Compiled;

}  // namespace
}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_BYTE_PLANES_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ckptree::internal {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One word at a time: what is left of a vector, and words of eight bytes.
template <typename Word>
HWY_ATTR void SplitWords(const std::byte* words, std::size_t from,
                         std::size_t count, bool rotate,
                         const Planes<std::byte>& planes) {
  constexpr int kBits = 8 * sizeof(Word);
  for (std::size_t i = from; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, words + i * sizeof(Word), sizeof(Word));
    if (rotate) word = static_cast<Word>(word << 1 | word >> (kBits - 1));
    for (std::size_t b = 0; b < sizeof(Word); ++b) {
      planes[b][i] = static_cast<std::byte>(word >> (8 * b) & 0xff);
    }
  }
}

template <typename Word>
HWY_ATTR void MergeWords(const Planes<const std::byte>& planes,
                         std::size_t from, std::size_t count, bool rotate,
                         std::byte* words) {
  constexpr int kBits = 8 * sizeof(Word);
  for (std::size_t i = from; i < count; ++i) {
    Word word = 0;
    for (std::size_t b = 0; b < sizeof(Word); ++b) {
      word = static_cast<Word>(word | std::to_integer<Word>(planes[b][i])
                                          << (8 * b));
    }
    if (rotate) word = static_cast<Word>(word >> 1 | word << (kBits - 1));
    std::memcpy(words + i * sizeof(Word), &word, sizeof(Word));
  }
}

#if HWY_TARGET == HWY_SCALAR

template <typename Word>
HWY_ATTR void SplitVectors(const std::byte* words, std::size_t count,
                           bool rotate, const Planes<std::byte>& planes) {
  SplitWords<Word>(words, 0, count, rotate, planes);
}

template <typename Word>
HWY_ATTR void MergeVectors(const Planes<const std::byte>& planes,
                           std::size_t count, bool rotate, std::byte* words) {
  MergeWords<Word>(planes, 0, count, rotate, words);
}

#else

inline const std::uint8_t* Bytes(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}
inline std::uint8_t* Bytes(std::byte* bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes);
}

template <typename Word>
using Vectors = hn::ScalableTag<Word>;

template <typename Word>
HWY_INLINE hn::Vec<Vectors<Word>> Rotated(hn::Vec<Vectors<Word>> v, bool left) {
  constexpr int kRest = 8 * sizeof(Word) - 1;
  return left ? hn::Or(hn::ShiftLeft<1>(v), hn::ShiftRight<kRest>(v))
              : hn::Or(hn::ShiftRight<1>(v), hn::ShiftLeft<kRest>(v));
}

template <typename Word>
HWY_ATTR void SplitVectors(const std::byte* words, std::size_t count,
                           bool rotate, const Planes<std::byte>& planes) {
  const Vectors<Word> d;
  const hn::Rebind<std::uint8_t, Vectors<Word>> bytes;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto v =
        hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, Vectors<Word>>(),
                                 Bytes(words) + i * sizeof(Word)));
    if (rotate) v = Rotated<Word>(v, true);
    hn::StoreU(hn::TruncateTo(bytes, v), bytes, Bytes(planes[0] + i));
    hn::StoreU(hn::TruncateTo(bytes, hn::ShiftRight<8>(v)), bytes,
               Bytes(planes[1] + i));
    if constexpr (sizeof(Word) == 4) {
      hn::StoreU(hn::TruncateTo(bytes, hn::ShiftRight<16>(v)), bytes,
                 Bytes(planes[2] + i));
      hn::StoreU(hn::TruncateTo(bytes, hn::ShiftRight<24>(v)), bytes,
                 Bytes(planes[3] + i));
    }
  }
  SplitWords<Word>(words, i, count, rotate, planes);
}

template <typename Word>
HWY_ATTR void MergeVectors(const Planes<const std::byte>& planes,
                           std::size_t count, bool rotate, std::byte* words) {
  const Vectors<Word> d;
  const hn::Rebind<std::uint8_t, Vectors<Word>> bytes;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  const auto plane = [&](std::size_t b) HWY_ATTR {
    return hn::PromoteTo(d, hn::LoadU(bytes, Bytes(planes[b] + i)));
  };
  for (; i + lanes <= count; i += lanes) {
    auto v = hn::Or(plane(0), hn::ShiftLeft<8>(plane(1)));
    if constexpr (sizeof(Word) == 4) {
      v = hn::Or(
          v, hn::Or(hn::ShiftLeft<16>(plane(2)), hn::ShiftLeft<24>(plane(3))));
    }
    if (rotate) v = Rotated<Word>(v, false);
    const hn::Repartition<std::uint8_t, Vectors<Word>> as_bytes;
    hn::StoreU(hn::BitCast(as_bytes, v), as_bytes,
               Bytes(words) + i * sizeof(Word));
  }
  MergeWords<Word>(planes, i, count, rotate, words);
}

#endif  // HWY_TARGET == HWY_SCALAR

HWY_ATTR void Split(const std::byte* words, std::size_t count, int width,
                    bool rotate, const Planes<std::byte>& planes) {
  switch (width) {
    case 2:
      return SplitVectors<std::uint16_t>(words, count, rotate, planes);
    case 4:
      return SplitVectors<std::uint32_t>(words, count, rotate, planes);
    case 8:
      return SplitWords<std::uint64_t>(words, 0, count, rotate, planes);
    default:
      return SplitWords<std::uint8_t>(words, 0, count, rotate, planes);
  }
}

HWY_ATTR void Merge(const Planes<const std::byte>& planes, std::size_t count,
                    int width, bool rotate, std::byte* words) {
  switch (width) {
    case 2:
      return MergeVectors<std::uint16_t>(planes, count, rotate, words);
    case 4:
      return MergeVectors<std::uint32_t>(planes, count, rotate, words);
    case 8:
      return MergeWords<std::uint64_t>(planes, 0, count, rotate, words);
    default:
      return MergeWords<std::uint8_t>(planes, 0, count, rotate, words);
  }
}

}  // namespace HWY_NAMESPACE

template <>
struct Compiled<HWY_TARGET> {
  static constexpr Functions kFunctions = {&HWY_NAMESPACE::Split,
                                           &HWY_NAMESPACE::Merge};
};

}  // namespace
}  // namespace ckptree::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ckptree::internal {
namespace {

Functions BestHere() {
  return base::BestOf<Compiled, HWY_TARGETS>(base::UsedInstructionSets());
}

}  // namespace

void SplitPlanes(const std::byte* words, std::size_t count, int width,
                 bool rotate, const Planes<std::byte>& planes) {
  BestHere().split(words, count, width, rotate, planes);
}

void MergePlanes(const Planes<const std::byte>& planes, std::size_t count,
                 int width, bool rotate, std::byte* words) {
  BestHere().merge(planes, count, width, rotate, words);
}

}  // namespace ckptree::internal

#endif  // HWY_ONCE
