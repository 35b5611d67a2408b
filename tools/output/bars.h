// SPDX-License-Identifier: Apache-2.0

// Bars and lines of characters.

#ifndef CKPTREE_TOOLS_OUTPUT_BARS_H_
#define CKPTREE_TOOLS_OUTPUT_BARS_H_

#include <span>
#include <string>

namespace ckptree::tools {

// A bar of `share` (0 to 1) of `width` columns; of what is not 0 at least the
// smallest mark. ASCII where not `utf8`.
std::string Bar(double share, int width, bool utf8);

// A character for each value, higher for larger ones; of more than `width`
// values the mean of several each. What holds a value that is not
// finite is an "x". Empty where no value is finite.
std::string Sparkline(std::span<const double> values, int width, bool utf8);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_BARS_H_
