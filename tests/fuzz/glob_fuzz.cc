// SPDX-License-Identifier: Apache-2.0

// Fuzzes patterns of paths. An input is a pattern, a zero byte and a text.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/path.h"
#include "schema/utf8.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

// A few bytes of an expression, "{99}{99}", can ask for 100 000 states, the
// most that there may be, and each character is held against all of them.
constexpr std::size_t kExpressionBytes = 32;
constexpr std::size_t kSearchedBytes = 32;
constexpr std::size_t kSearchedBytesWithCounts = 1;

std::vector<std::string_view> CharactersOf(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const auto length = static_cast<std::size_t>(schema::Utf8Length(text));
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

// By the definition: each row says which beginnings of the text a beginning of
// the pattern can match.
bool SlowMatch(std::string_view pattern, std::string_view text) {
  const auto characters = CharactersOf(text);
  std::vector<bool> row(characters.size() + 1, false);
  row[0] = true;
  for (const std::string_view p : CharactersOf(pattern)) {
    std::vector<bool> next(row.size(), false);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (p == "*") {
        next[i] = row[i] || (i > 0 && next[i - 1]);
      } else if (i > 0) {
        next[i] = row[i - 1] && (p == "?" || p == characters[i - 1]);
      }
    }
    row = next;
  }
  return row.back();
}

bool IsOnePart(std::string_view text) {
  return !text.empty() && text.size() <= 256 && text != "**" &&
         text.find_first_of("\"/") == text.npos && schema::IsUtf8(text);
}

void FuzzGlob(std::string_view pattern, std::string_view text) {
  const bool expression = pattern.starts_with("re:");
  if (expression) {
    if (pattern.size() > kExpressionBytes) return;
    text = text.substr(0, pattern.find('{') == pattern.npos
                              ? kSearchedBytes
                              : kSearchedBytesWithCounts);
  }
  const absl::Status status = ValidateGlob(pattern);
  const bool matches = MatchesGlob(pattern, text);
  if (!status.ok()) {
    RequireInvalid(status);
    Require(!expression || !matches, "a bad expression matches nothing");
  }
  if (!expression && IsOnePart(pattern) && IsOnePart(text)) {
    Require(matches == SlowMatch(pattern, text), "a glob means what it says");
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view input = ckptree::fuzz::TextOf(data, size);
  const std::size_t end = input.find('\0');
  ckptree::fuzz::FuzzGlob(input.substr(0, end), end == input.npos
                                                    ? std::string_view()
                                                    : input.substr(end + 1));
  return 0;
}
