// SPDX-License-Identifier: Apache-2.0

// JSON of others, which is looked at before it is parsed: that takes memory by
// its depth, and keeps the last of two values of one name.

#ifndef CKPTREE_TOOLS_FILES_JSON_LOOK_H_
#define CKPTREE_TOOLS_FILES_JSON_LOOK_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace ckptree::tools {

struct ForeignJson {
  // Null: it is no JSON, or its objects and lists lie in each other too deep.
  nlohmann::json value;
  // The names down to the first one that its object has twice.
  std::optional<std::vector<std::string>> twice;
};

ForeignJson ParseForeignJson(std::string_view text, int most_depth);

// A value as text: that of a string itself.
std::string TextOf(const nlohmann::json& value);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_JSON_LOOK_H_
