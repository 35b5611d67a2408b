// SPDX-License-Identifier: Apache-2.0

// A text of the caller's, as messages show it.

#ifndef CKPTREE_SCHEMA_QUOTED_TEXT_H_
#define CKPTREE_SCHEMA_QUOTED_TEXT_H_

#include <string>
#include <string_view>

namespace ckptree::schema {

// The text between quotes, at most 100 bytes of it, and what is not printable
// as an escape: it may be of any length and any bytes.
std::string Quoted(std::string_view text);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_QUOTED_TEXT_H_
