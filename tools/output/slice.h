// SPDX-License-Identifier: Apache-2.0

// NumPy slices: "[0:10, ::2, -1]".

#ifndef CKPTREE_TOOLS_OUTPUT_SLICE_H_
#define CKPTREE_TOOLS_OUTPUT_SLICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/tensor.h"

namespace ckptree::tools {

// One entry between the commas.
struct SliceItem {
  enum class Kind { kIndex, kRange, kEllipsis };
  Kind kind = Kind::kRange;
  std::int64_t index = 0;  // kIndex.
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;

  friend bool operator==(const SliceItem&, const SliceItem&) = default;
};

// With the brackets. kInvalidArgument says what is wrong.
absl::StatusOr<std::vector<SliceItem>> ParseSlice(std::string_view text);

// `text` without the slice at its end, and the slice; nothing where `text`
// does not end in brackets that hold only what a slice may.
std::optional<std::pair<std::string_view, std::string_view>> SplitSlice(
    std::string_view text);

// The error of ParseSlice() for `text`, with a hint; OK where it has none.
absl::Status WhyNoSlice(std::string_view text);

// Of a key that is not there: WhyNoSlice() where it is one that is, by
// `is_key`, and brackets behind it that SplitSlice() does not take. Else OK.
absl::Status WrongSliceOf(std::string_view text,
                          const std::function<bool(std::string_view)>& is_key);

// The elements start, start + step, ... of one dimension.
struct DimSelection {
  std::int64_t start = 0;
  std::int64_t step = 1;  // Not 0.
  std::int64_t count = 0;
  bool dropped = false;  // An index: not a dimension of the result.

  friend bool operator==(const DimSelection&, const DimSelection&) = default;
};
using Selection = std::vector<DimSelection>;

// `items` on an array of `shape`, by NumPy's rules. kInvalidArgument: too many
// entries, an index out of bounds.
absl::StatusOr<Selection> Select(const std::vector<SliceItem>& items,
                                 const Shape& shape);
Selection SelectAll(const Shape& shape);

Shape ResultShape(const Selection& selection);
std::int64_t SelectedCount(const Selection& selection);

// The smallest box that holds every selected element.
BoxSpec CoveringBox(const Selection& selection);

// Copies the selected elements out of the bytes of the covering box, densely,
// row-major. REQUIRES: `out` holds SelectedCount() elements.
void Gather(const Selection& selection, std::size_t element_bytes,
            std::span<const std::byte> box, std::span<std::byte> out);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_SLICE_H_
