// SPDX-License-Identifier: Apache-2.0

// Arrays as NumPy prints them.

#ifndef CKPTREE_TOOLS_OUTPUT_ARRAY_TEXT_H_
#define CKPTREE_TOOLS_OUTPUT_ARRAY_TEXT_H_

#include <cstddef>
#include <span>
#include <string>

#include "ckptree/tensor.h"

namespace ckptree::tools {

// Elements shown at either end of a dimension that is not shown whole, and the
// number of elements from which on that is done.
inline constexpr std::int64_t kEdgeElements = 3;
inline constexpr std::int64_t kPrintWhole = 1000;

// Nested brackets, columns aligned, lines of about `width`.
//
// `shape` is that of the array; `kept` that of `elements`, dense and row-major:
// where kept[d] < shape[d] the first and last kEdgeElements of d are there.
std::string ArrayText(DType dtype, const Shape& shape, const Shape& kept,
                      std::span<const std::byte> elements, int width);

// Nested JSON arrays without spaces; elements as ElementJson() writes them.
std::string ArrayJson(DType dtype, const Shape& shape,
                      std::span<const std::byte> elements);

// A line for each row, elements as ElementData() writes them, for programs.
// REQUIRES: at most two dimensions.
std::string ArrayRows(DType dtype, const Shape& shape,
                      std::span<const std::byte> elements, char separator);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ARRAY_TEXT_H_
