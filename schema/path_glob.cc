// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree {
namespace {

constexpr std::string_view kRegexPrefix = "re:";

// Cuts a text or a pattern at each '/' outside quotes. False where a quote is
// left open.
bool SplitParts(std::string_view text, std::vector<std::string_view>* parts) {
  parts->clear();
  if (text.empty()) return true;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == '/' && !quoted) {
      parts->push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts->push_back(text.substr(begin));
  return !quoted;
}

// Bytes of the character at `at`; what is no UTF-8 is taken byte by byte.
std::size_t CharacterLength(std::string_view text, std::size_t at) {
  const int length = schema::Utf8Length(text.substr(at));
  return static_cast<std::size_t>(length == 0 ? 1 : length);
}

// '*' and '?' within one part. Goes back to the last star only, so the time is
// at most the product of the lengths.
bool PartMatches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      t += CharacterLength(text, t);
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      resume += CharacterLength(text, resume);
      t = resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// True where all of `pattern` matches the first parts of `text`.
bool PartsMatch(const std::vector<std::string_view>& pattern,
                const std::vector<std::string_view>& text) {
  // reached[i]: the pattern so far can have used up the first i parts.
  std::vector<bool> reached(text.size() + 1, false);
  reached[0] = true;
  for (const std::string_view part : pattern) {
    if (part == "**") {
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (reached[i]) reached[i + 1] = true;
      }
      continue;
    }
    for (std::size_t i = text.size(); i-- > 0;) {
      reached[i + 1] = reached[i] && PartMatches(part, text[i]);
    }
    reached[0] = false;
  }
  for (const bool any : reached) {
    if (any) return true;
  }
  return false;
}

// Without it libstdc++ goes back and forth, which takes time exponential in the
// text and stack for each of its characters; with it there are no references
// back.
constexpr auto kSyntax =
    std::regex::ECMAScript | std::regex_constants::__polynomial;

// True where a count or a reference has more digits than libstdc++ reads
// without overflow.
bool HasHugeNumber(std::string_view expression) {
  constexpr std::size_t kMostDigits = 9;
  std::size_t digits = 0;
  bool number = false;
  for (const char c : expression) {
    if (c >= '0' && c <= '9') {
      if (number && ++digits > kMostDigits) return true;
      continue;
    }
    number = c == '\\' || c == '{' || c == ',';
    digits = 0;
  }
  return false;
}

// Null where the expression does not parse.
std::unique_ptr<std::regex> Compile(std::string_view expression,
                                    std::string* fault) {
  // It is parsed recursively.
  if (static_cast<std::int64_t>(expression.size()) > schema::kMaxPathBytes) {
    *fault = "it is too long";
    return nullptr;
  }
  if (HasHugeNumber(expression)) {
    *fault = "a number in it is too large";
    return nullptr;
  }
  try {
    // As a string: libstdc++ looks at the byte after a last '('.
    return std::make_unique<std::regex>(std::string(expression), kSyntax);
  } catch (const std::regex_error& error) {
    *fault = error.what();
    return nullptr;
  }
}

bool RegexMatches(std::string_view expression, std::string_view text) {
  // One pattern meets every leaf of a tree: it is compiled once.
  thread_local std::string last;
  thread_local std::unique_ptr<std::regex> compiled;
  if (compiled == nullptr || last != expression) {
    std::string fault;
    compiled = Compile(expression, &fault);
    last = expression;
    if (compiled == nullptr) return false;
  }
  try {
    return std::regex_search(text.begin(), text.end(), *compiled);
  } catch (const std::regex_error&) {
    return false;  // Too complex for this text.
  }
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  if (pattern.empty() || pattern == "**") return true;
  if (pattern.starts_with(kRegexPrefix)) {
    return RegexMatches(pattern.substr(kRegexPrefix.size()), text);
  }
  std::vector<std::string_view> pattern_parts;
  std::vector<std::string_view> text_parts;
  return SplitParts(pattern, &pattern_parts) && SplitParts(text, &text_parts) &&
         PartsMatch(pattern_parts, text_parts);
}

absl::Status ValidateGlob(std::string_view pattern) {
  if (pattern.starts_with(kRegexPrefix)) {
    std::string fault;
    if (Compile(pattern.substr(kRegexPrefix.size()), &fault) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pattern %s: %s", pattern, fault));
    }
    return absl::OkStatus();
  }
  std::vector<std::string_view> parts;
  if (!SplitParts(pattern, &parts)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pattern %s: a quote is left open", pattern));
  }
  for (const std::string_view part : parts) {
    if (part.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pattern %s: an empty part", pattern));
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptree
