// SPDX-License-Identifier: Apache-2.0

#include "tools/report/number_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ckptree::tools {
namespace {

constexpr std::uint32_t kSign = 0x80000000;

// The bits of `value` as a float32, rounded to what is left without the lowest
// `cut` of them, as a number that grows with the value.
std::int64_t InOrder(double value, int cut) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const bool negative = (bits & kSign) != 0;
  bits &= ~kSign;
  if (std::isfinite(value) && cut > 0) {
    // Not up to infinity.
    constexpr std::uint32_t kInfinity = 0x7f800000;
    bits = std::min(bits + (1u << (cut - 1)), kInfinity - 1);
  }
  const auto size = static_cast<std::int64_t>(bits >> cut);
  return negative && !std::isnan(value) ? -size : size;
}

}  // namespace

void NumberPack::Append(std::int64_t difference) {
  // Wraps where two numbers are further apart than 2^63; so does the reader.
  auto rest = (static_cast<std::uint64_t>(difference) << 1) ^
              static_cast<std::uint64_t>(difference >> 63);
  while (rest >= 0x80) {
    bytes_.push_back(static_cast<char>(rest | 0x80));
    rest >>= 7;
  }
  bytes_.push_back(static_cast<char>(rest));
}

nlohmann::ordered_json NumberPack::AddIntegers(
    std::span<const std::int64_t> values) {
  const std::size_t at = bytes_.size();
  std::int64_t before = 0;
  for (const std::int64_t value : values) {
    Append(value - before);
    before = value;
  }
  return {{"at", at}, {"n", values.size()}};
}

nlohmann::ordered_json NumberPack::AddFloats(std::span<const double> values,
                                             Digits digits) {
  const int cut = digits == Digits::kDrawn ? 8 : 0;
  const std::size_t at = bytes_.size();
  std::int64_t before = 0;
  for (const double value : values) {
    const std::int64_t now = InOrder(value, cut);
    Append(now - before);
    before = now;
  }
  return {{"at", at}, {"n", values.size()}, {"cut", cut}};
}

}  // namespace ckptree::tools
