// SPDX-License-Identifier: Apache-2.0

// A text without the spaces around it.

#ifndef CKPTREE_TOOLS_OUTPUT_TRIM_H_
#define CKPTREE_TOOLS_OUTPUT_TRIM_H_

#include <string_view>

namespace ckptree::tools {

inline std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_TRIM_H_
