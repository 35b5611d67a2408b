// SPDX-License-Identifier: Apache-2.0

// Names and texts of the caller, as messages and paths show them.

#ifndef CKPTREE_SCHEMA_QUOTED_TEXT_H_
#define CKPTREE_SCHEMA_QUOTED_TEXT_H_

#include <string>
#include <string_view>

namespace ckptree::schema {

// The text between quotes, at most 100 bytes of it, and what is not printable
// as an escape: it may be of any length and any bytes.
std::string Quoted(std::string_view text);

// Whether a name of only such characters stands in the text of a path without
// quotes.
constexpr bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_QUOTED_TEXT_H_
