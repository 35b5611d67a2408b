// SPDX-License-Identifier: Apache-2.0

// JSON: is it.

#ifndef CKPTREE_SCHEMA_JSON_TEXT_H_
#define CKPTREE_SCHEMA_JSON_TEXT_H_

#include <string_view>

#include "absl/status/status.h"

namespace ckptree::schema {

// Arrays and objects in each other: what readers take, which recurse.
inline constexpr int kMaxJsonDepth = 500;

// OK where `text` is one value of JSON (RFC 8259), with NaN, Infinity and
// -Infinity as Python writes them. Else kInvalidArgument, saying at which byte
// it stops being one.
absl::Status CheckJson(std::string_view text);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_JSON_TEXT_H_
