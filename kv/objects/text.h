// SPDX-License-Identifier: Apache-2.0

// Words of an answer, an address, a file of settings. Debian's
// absl::string_view is a type of its own, which takes no std::string_view.

#ifndef CKPTREE_KV_OBJECTS_TEXT_H_
#define CKPTREE_KV_OBJECTS_TEXT_H_

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace ckptree::kv {

// The variable of the environment; empty where it is not set.
inline std::string EnvironmentText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Without the white space around it.
inline std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// True where all of `text` is a number that fits.
template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// It could be written into a header as two.
inline bool IsOneLine(std::string_view text) {
  return text.find_first_of("\r\n") == std::string_view::npos;
}

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_TEXT_H_
