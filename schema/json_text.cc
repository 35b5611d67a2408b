// SPDX-License-Identifier: Apache-2.0

#include "schema/json_text.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "schema/utf8.h"

namespace ckptree::schema {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Reads on from `at_`; each Skip...() is false where no such thing stands.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  // One value, without recursion: `open_` has the brackets around it.
  absl::Status Check() {
    if (!IsUtf8(text_))
      return absl::InvalidArgumentError("no JSON: it is no UTF-8");
    while (true) {
      SkipSpace();
      if (Next() == '{' || Next() == '[') {
        if (open_.size() == std::size_t{kMaxJsonDepth}) {
          return absl::InvalidArgumentError(absl::StrFormat(
              "the JSON is nested too deeply: at most %d levels are possible, "
              "and one more begins at byte %d",
              kMaxJsonDepth, at_));
        }
        open_.push_back(text_[at_++]);
        SkipSpace();
        if (Next() != Closing()) {
          if (open_.back() == '{' && !SkipName()) return Wrong("a name");
          continue;
        }
      } else if (!SkipScalar()) {
        return Wrong("a value");
      } else {
        SkipSpace();
      }
      // Behind a value, or before the end of an empty array or object.
      while (!open_.empty() && Next() == Closing()) {
        ++at_;
        open_.pop_back();
        SkipSpace();
      }
      if (open_.empty()) {
        return at_ == text_.size() ? absl::OkStatus() : Wrong("the end");
      }
      if (!Skip(",")) return Wrong("a comma, or the end of what is open");
      SkipSpace();
      if (open_.back() == '{' && !SkipName()) return Wrong("a name");
    }
  }

 private:
  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char Closing() const { return open_.back() == '{' ? '}' : ']'; }

  absl::Status Wrong(std::string_view wanted) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("no JSON: at byte %d there is not %s", at_, wanted));
  }

  void SkipSpace() {
    while (Next() == ' ' || Next() == '\t' || Next() == '\n' ||
           Next() == '\r') {
      ++at_;
    }
  }
  bool Skip(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool SkipDigits() {
    const std::size_t from = at_;
    while (IsDigit(Next())) ++at_;
    return at_ > from;
  }
  bool SkipName() {
    if (!SkipString()) return false;
    SkipSpace();
    return Skip(":");
  }
  bool SkipScalar() {
    if (Next() == '"') return SkipString();
    for (const std::string_view word :
         {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (Skip(word)) return true;
    }
    return SkipNumber();
  }
  bool SkipNumber() {
    Skip("-");
    if (!Skip("0") && !SkipDigits()) return false;
    if (Skip(".") && !SkipDigits()) return false;
    if (Skip("e") || Skip("E")) {
      if (!Skip("+")) Skip("-");
      return SkipDigits();
    }
    return true;
  }
  bool SkipString() {
    if (!Skip("\"")) return false;
    while (!Skip("\"")) {
      if (at_ == text_.size()) return false;
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !SkipEscape()) return false;
    }
    return true;
  }
  bool SkipEscape() {
    constexpr std::string_view kOne = "\"\\/bfnrt";
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    if (kOne.find(c) != kOne.npos) return true;
    if (c != 'u') return false;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (!IsHex(Next())) return false;
    }
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string open_;
};

}  // namespace

absl::Status CheckJson(std::string_view text) {
  return JsonReader(text).Check();
}

}  // namespace ckptree::schema
