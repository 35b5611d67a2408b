// SPDX-License-Identifier: Apache-2.0

// The word that was probably meant.

#ifndef CKPTREE_TOOLS_OUTPUT_NEAREST_H_
#define CKPTREE_TOOLS_OUTPUT_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace ckptree::tools {

// Fewest letters to insert, drop, change or swap with their neighbour.
int EditDistance(std::string_view a, std::string_view b);

// The one of `names` nearest to `word`; empty where none is near.
std::string Nearest(std::string_view word, std::span<const std::string> names);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_NEAREST_H_
