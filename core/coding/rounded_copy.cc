// SPDX-License-Identifier: Apache-2.0

// Hot path: per word coded and decoded. Compiled once for each instruction set
// (foreach_target.h); all give the same bytes.

#include "core/coding/rounded_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/instruction_set.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/coding/rounded_copy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Shared by all instruction sets.
#ifndef CKPTREE_CORE_ROUNDED_COPY_CC_ONCE_
#define CKPTREE_CORE_ROUNDED_COPY_CC_ONCE_

namespace ckptree::internal {
namespace {

// The function of one instruction set.
template <base::InstructionSets kSet>
struct Compiled;

}  // namespace
}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ROUNDED_COPY_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ckptree::internal {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void Round(const std::byte* master, std::size_t count,
                    std::byte* copy) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  const hn::Repartition<std::uint8_t, decltype(d)> bytes;
  const hn::Repartition<std::uint8_t, decltype(half)> half_bytes;
  for (; i + lanes <= count; i += lanes) {
    const auto word = hn::BitCast(
        d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(master) +
                                i * sizeof(std::uint32_t)));
    const auto top = hn::ShiftRight<16>(word);
    const auto is_nan =
        hn::Gt(hn::And(word, hn::Set(d, 0x7fffffffu)), hn::Set(d, 0x7f800000u));
    const auto nearest = hn::ShiftRight<16>(hn::Add(
        hn::Add(word, hn::Set(d, 0x7fffu)), hn::And(top, hn::Set(d, 1u))));
    const auto rounded =
        hn::IfThenElse(is_nan, hn::Or(top, hn::Set(d, 0x40u)), nearest);
    hn::StoreU(
        hn::BitCast(half_bytes, hn::TruncateTo(half, rounded)), half_bytes,
        reinterpret_cast<std::uint8_t*>(copy) + i * sizeof(std::uint16_t));
  }
#endif
  for (; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, master + i * sizeof(word), sizeof(word));
    const std::uint16_t rounded = RoundedWord(word);
    std::memcpy(copy + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

}  // namespace HWY_NAMESPACE

template <>
struct Compiled<HWY_TARGET> {
  static constexpr auto kFunctions = &HWY_NAMESPACE::Round;
};

}  // namespace
}  // namespace ckptree::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ckptree::internal {
namespace {

// Words that are compared at once: what is no copy is soon known.
constexpr std::size_t kWordsAtOnce = 1024;

}  // namespace

void RoundWords(std::span<const std::byte> master, std::byte* copy) {
  const auto round =
      base::BestOf<Compiled, HWY_TARGETS>(base::UsedInstructionSets());
  round(master.data(), master.size() / sizeof(std::uint32_t), copy);
}

bool IsRoundedCopy(std::span<const std::byte> master,
                   std::span<const std::byte> copy) {
  if (master.size() % 4 != 0 || 2 * copy.size() != master.size()) return false;
  const std::size_t count = master.size() / 4;
  std::array<std::byte, 2 * kWordsAtOnce> rounded;
  for (std::size_t at = 0; at < count; at += kWordsAtOnce) {
    const std::size_t words = std::min(kWordsAtOnce, count - at);
    RoundWords(master.subspan(4 * at, 4 * words), rounded.data());
    if (std::memcmp(rounded.data(), copy.data() + 2 * at, 2 * words) != 0) {
      return false;
    }
  }
  return true;
}

bool EndsWithRoundedCopy(std::span<const std::byte> payload) {
  if (payload.empty() || payload.size() % 6 != 0) return false;
  const std::size_t master = payload.size() / 3 * 2;
  return IsRoundedCopy(payload.first(master), payload.subspan(master));
}

}  // namespace ckptree::internal

#endif  // HWY_ONCE
