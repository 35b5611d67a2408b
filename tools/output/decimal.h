// SPDX-License-Identifier: Apache-2.0

// Binary numbers as decimal text.

#ifndef CKPTREE_TOOLS_OUTPUT_DECIMAL_H_
#define CKPTREE_TOOLS_OUTPUT_DECIMAL_H_

#include <cstddef>
#include <span>
#include <string>

namespace ckptree::tools {

// The fewest digits that read back as the same number of the same type, laid
// out as Python does: "0.1", "1.0", "1e+16", "nan", "-inf".
std::string DecimalText(float value);
std::string DecimalText(double value);

// The fewest digits of a number between `low` and `high`, both excluded:
// `value` of a type whose neighbours round to it there.
// REQUIRES: low < value < high, value finite and not 0.
std::string DecimalTextBetween(double value, double low, double high);

// Of an integer of any size: two's complement, the lowest byte first; "0" of no
// bytes. The time grows with the square of their number.
std::string DecimalText(std::span<const std::byte> integer);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_DECIMAL_H_
