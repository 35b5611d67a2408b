// SPDX-License-Identifier: Apache-2.0

// Statistics of element types that have at most 256 values.

#ifndef CKPTREE_CORE_ARRAY_SMALL_TYPE_STATISTICS_H_
#define CKPTREE_CORE_ARRAY_SMALL_TYPE_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ckptree/dtype.h"
#include "ckptree/statistics.h"

namespace ckptree {

// Counts how often each code occurs in a tile, then adds count * value in the
// order of the codes; tiles as ComputeStatistics says. Thread-safe.
// REQUIRES: BitWidth(dtype) is 1 to 8.
Statistics SmallTypeStatistics(DType dtype, bool packed,
                               std::span<const std::byte> elements,
                               std::optional<std::int64_t> element_count);

// The value of an element whose bits are the low bits of `code`; the others are
// ignored, but any nonzero bool is 1. The floating types are those of ml_dtypes
// (OCP FP8 and MX, and the "fnuz" ones of GraphCore and AMD), with the
// subnormals. REQUIRES: as above.
double SmallTypeValue(DType dtype, unsigned code);

}  // namespace ckptree

#endif  // CKPTREE_CORE_ARRAY_SMALL_TYPE_STATISTICS_H_
