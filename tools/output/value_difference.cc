// SPDX-License-Identifier: Apache-2.0

#include "tools/output/value_difference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/output/array_reader.h"
#include "tools/output/element_text.h"
#include "tools/output/slice.h"

namespace ckptree::tools {
namespace {

// Bytes of each array that are looked at together, where its rows allow it.
constexpr std::int64_t kPieceBytes = 4 << 20;
constexpr std::pair<const char*, const char*> kNonFinite[] = {
    {"nan_before", "NAN BEFORE"},
    {"nan_after", "NAN AFTER"},
    {"inf_before", "INF BEFORE"},
    {"inf_after", "INF AFTER"}};

template <typename Whole>
double Apart(const std::byte* before, const std::byte* after) {
  Whole x, y;
  std::memcpy(&x, before, sizeof x);
  std::memcpy(&y, after, sizeof y);
  return static_cast<double>(
      x < y ? static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x)
            : static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y));
}

// Of 64 bits, two whole numbers beyond 2^53 may be one number as doubles.
double DistanceOf(DType dtype, const std::byte* before,
                  const std::byte* after) {
  if (dtype == DType::kInt64) return Apart<std::int64_t>(before, after);
  if (dtype == DType::kUint64) return Apart<std::uint64_t>(before, after);
  return std::abs(RealValue(dtype, after) - RealValue(dtype, before));
}

// Of a real one the other part is 0: finite, and adding nothing.
std::complex<double> ValueOf(DType dtype, const std::byte* element) {
  if (IsComplex(dtype)) return ComplexValue(dtype, element);
  return RealValue(dtype, element);
}

bool IsFinite(const std::complex<double>& value) {
  return std::isfinite(value.real()) && std::isfinite(value.imag());
}

void CountNonFinite(const std::complex<double>& value, std::size_t side,
                    ValueDifference* difference) {
  if (IsFinite(value)) return;
  for (const double part : {value.real(), value.imag()}) {
    difference->nan[side] += std::isnan(part) ? 1 : 0;
    difference->inf[side] += std::isinf(part) ? 1 : 0;
  }
}

}  // namespace

absl::StatusOr<ValueDifference> CompareValues(
    const Step& before, const LeafInfo& before_leaf, const Step& after,
    const LeafInfo& after_leaf, const std::function<bool()>& cancelled) {
  return CompareValues(before_leaf, ArrayReader(before, before_leaf),
                       ArrayReader(after, after_leaf), cancelled);
}

absl::StatusOr<ValueDifference> CompareValues(
    const LeafInfo& leaf, const ArrayReader& before, const ArrayReader& after,
    const std::function<bool()>& cancelled) {
  const DType dtype = leaf.dtype;
  const auto width = static_cast<std::size_t>(ElementBytes(dtype));
  Selection selection = SelectAll(leaf.shape);
  ValueDifference difference;
  double sum = 0, before_sum = 0;
  const std::int64_t rows = selection.empty() ? 1
                            : SelectedCount(selection) == 0
                                ? 0
                                : selection[0].count;
  const std::int64_t row_bytes =
      rows == 0
          ? 0
          : SelectedCount(selection) / rows * static_cast<std::int64_t>(width);
  const std::int64_t most = std::max<std::int64_t>(
      1, kPieceBytes / std::max<std::int64_t>(1, row_bytes));
  for (std::int64_t row = 0; row < rows; row += most) {
    if (cancelled()) return absl::CancelledError("interrupted");
    if (!selection.empty()) {
      selection[0].start = row;
      selection[0].count = std::min(most, rows - row);
    }
    const absl::StatusOr<std::vector<std::byte>> a = before.Read(selection);
    if (!a.ok()) return a.status();
    const absl::StatusOr<std::vector<std::byte>> b = after.Read(selection);
    if (!b.ok()) return b.status();
    for (std::size_t at = 0; at + width <= a->size(); at += width) {
      ++difference.elements;
      if (std::memcmp(a->data() + at, b->data() + at, width) != 0) {
        ++difference.changed;
      }
      const std::complex<double> x = ValueOf(dtype, a->data() + at);
      const std::complex<double> y = ValueOf(dtype, b->data() + at);
      CountNonFinite(x, 0, &difference);
      CountNonFinite(y, 1, &difference);
      if (!IsFinite(x) || !IsFinite(y)) continue;
      const double apart =
          IsComplex(dtype) ? std::abs(y - x)
                           : DistanceOf(dtype, a->data() + at, b->data() + at);
      difference.max_abs = std::max(difference.max_abs, apart);
      sum += apart * apart;
      before_sum += std::norm(x);
    }
  }
  difference.l2 = std::sqrt(sum);
  difference.before_l2 = std::sqrt(before_sum);
  return difference;
}

void AddValueColumns(Table* table) {
  for (const auto& [name, title] :
       {std::pair("max_abs", "MAX ABS"), std::pair("relative", "RELATIVE"),
        std::pair("changed_elements", "CHANGED ELEMENTS")}) {
    table->columns.push_back(
        {.name = name, .title = title, .right = true, .asked = true});
  }
}

void AddNonFiniteColumns(Table* table) {
  for (const auto& [name, title] : kNonFinite) {
    table->columns.push_back({.name = name, .right = true, .asked = true});
  }
}

void TitleNonFiniteColumns(Table* table) {
  for (Column& column : table->columns) {
    for (const auto& [name, title] : kNonFinite) {
      if (column.name == name) column.title = title;
    }
  }
}

}  // namespace ckptree::tools
