// SPDX-License-Identifier: Apache-2.0

#include "ckptree/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/plain_floats.h"

namespace ckptree {
namespace {

bool SameBits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

void Statistics::Merge(const Statistics& other) {
  const base::PlainFloats plain;
  count += other.count;
  nan += other.nan;
  inf += other.inf;
  zero += other.zero;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
}

double Statistics::mean() const {
  if (finite() == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum / static_cast<double>(finite());
}

double Statistics::l2() const { return std::sqrt(sum_of_squares); }

double Statistics::std_dev() const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (finite() == 0) return kUnknown;
  const double range = max - min;
  if (range == 0) return 0;
  const auto n = static_cast<double>(finite());
  const double average = mean();
  const double square = average * average;
  if (std::isinf(sum_of_squares) || std::isinf(square) || sum_of_squares == 0) {
    return kUnknown;
  }
  const double from_sums =
      std::sqrt(std::max(0.0, sum_of_squares / n - square));
  // A double has 16 digits: of the square of this nothing is left in it.
  if (from_sums < 1e-7 * std::abs(average)) return kUnknown;
  // Of one element at each end it is at least, and of half of all at each end
  // at most.
  return std::clamp(from_sums, std::min(range / std::sqrt(2 * n), range / 2),
                    range / 2);
}

bool operator==(const Statistics& a, const Statistics& b) {
  return a.count == b.count && a.nan == b.nan && a.inf == b.inf &&
         a.zero == b.zero && SameBits(a.min, b.min) && SameBits(a.max, b.max) &&
         SameBits(a.sum, b.sum) && SameBits(a.sum_of_squares, b.sum_of_squares);
}

}  // namespace ckptree
