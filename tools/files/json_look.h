// SPDX-License-Identifier: Apache-2.0

// A look at JSON of others before it is parsed, which takes memory by its depth
// and keeps the last of two values of one name.

#ifndef CKPTREE_TOOLS_FILES_JSON_LOOK_H_
#define CKPTREE_TOOLS_FILES_JSON_LOOK_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckptree::tools {

struct JsonLook {
  // It is JSON, and its objects and lists lie in each other at most so deep.
  bool fits = false;
  // The names down to the first one that its object has twice.
  std::optional<std::vector<std::string>> twice;
};

JsonLook LookAtJson(std::string_view text, int most_depth);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_JSON_LOOK_H_
