// SPDX-License-Identifier: Apache-2.0

// By how much the elements of two arrays differ.

#ifndef CKPTREE_TOOLS_OUTPUT_VALUE_DIFFERENCE_H_
#define CKPTREE_TOOLS_OUTPUT_VALUE_DIFFERENCE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>

#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "tools/output/array_reader.h"
#include "tools/output/table.h"

namespace ckptree::tools {

struct ValueDifference {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;  // Of other bits.
  // Over the elements that are finite on both sides, in both parts.
  double max_abs = 0;
  double l2 = 0;         // Of the difference.
  double before_l2 = 0;  // Of the first array.
  // What is not finite: of the first array, and of the second.
  std::array<std::uint64_t, 2> nan = {};
  std::array<std::uint64_t, 2> inf = {};

  bool has_non_finite() const { return nan[0] + nan[1] + inf[0] + inf[1] > 0; }
  // Infinite where the first array has zeros alone.
  double relative() const {
    if (l2 == 0) return 0;
    return before_l2 == 0 ? std::numeric_limits<double>::infinity()
                          : l2 / before_l2;
  }
};

// Reads both arrays, a few MiB at a time. Two complex elements are |a - b|
// apart; NaN and Inf are counted in their parts, as statistics count them.
// REQUIRES: equal types and shapes. kCancelled where `cancelled` says so.
absl::StatusOr<ValueDifference> CompareValues(
    const Step& before, const LeafInfo& before_leaf, const Step& after,
    const LeafInfo& after_leaf, const std::function<bool()>& cancelled);
// The same of any two arrays; `leaf` says what type and shape both have.
absl::StatusOr<ValueDifference> CompareValues(
    const LeafInfo& leaf, const ArrayReader& before, const ArrayReader& after,
    const std::function<bool()>& cancelled);

// The columns of what --values asks for: max_abs, relative, changed_elements.
void AddValueColumns(Table* table);

// What of both sides is not finite, which no norm or difference has:
// nan_before, nan_after, inf_before, inf_after. Without a title, which is for
// tables in which there is any.
void AddNonFiniteColumns(Table* table);
void TitleNonFiniteColumns(Table* table);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_VALUE_DIFFERENCE_H_
