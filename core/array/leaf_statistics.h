// SPDX-License-Identifier: Apache-2.0

// What is known of the elements of one chunk after one look at each.

#ifndef CKPTREE_CORE_ARRAY_LEAF_STATISTICS_H_
#define CKPTREE_CORE_ARRAY_LEAF_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ckptree/dtype.h"
#include "ckptree/statistics.h"

namespace ckptree {

// Looks at every element of one chunk. `elements` needs no alignment; bytes
// past its last whole element are ignored.
//
// The bits of the result depend on the bytes alone, never on the machine. The
// chunk is cut into tiles of 64 KiB (65 535 bytes for packed 6-bit types, whose
// groups are 3 bytes). Inside a tile, element (or part of a complex element) i
// is added to lane i mod 16; the lanes are folded 8 apart, then 4, 2 and 1;
// the tiles are merged in order. Types of 8 bits and fewer are added instead as
// (how often a code occurs) * (its value), in the order of the codes. A zero
// minimum or maximum is +0, and a NaN sum (doubles that overflow both ways) is
// the positive quiet one.
//
// Sub-byte elements that are not packed lie in the low bits of their byte; the
// other bits are ignored. Any nonzero bool is 1. For packed elements
// `element_count` tells how many there are where the last byte is not full;
// without it every bit counts. Otherwise it is ignored.
//
// Thread-safe. kNone gives an empty result.
Statistics ComputeStatistics(
    DType dtype, bool packed, std::span<const std::byte> elements,
    std::optional<std::int64_t> element_count = std::nullopt);

// True for every element type; false for kNone and unknown numbers.
bool HasStatistics(DType dtype);

}  // namespace ckptree

#endif  // CKPTREE_CORE_ARRAY_LEAF_STATISTICS_H_
