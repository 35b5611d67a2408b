// SPDX-License-Identifier: Apache-2.0

// UTF-8: is it, and the bytes of one character.

#ifndef CKPTREE_SCHEMA_UTF8_H_
#define CKPTREE_SCHEMA_UTF8_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ckptree::schema {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above
// U+10FFFF.
bool IsUtf8(std::string_view text);

// Bytes of the character at the start of `text`, or 0 where there is none that
// is well formed.
int Utf8Length(std::string_view text);

// Appends `code`; false for a surrogate or a value above U+10FFFF.
bool AppendUtf8(std::uint32_t code, std::string* out);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_UTF8_H_
