// SPDX-License-Identifier: Apache-2.0

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "schema/limits.h"
#include "schema/quoted_text.h"
#include "schema/utf8.h"

namespace ckptree {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A recursive descent over the text. Functions return false after they set the
// fault; `at_` is then where it is.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Path> Run() {
    std::vector<PathPart> parts;
    parts.reserve(4);
    // JAX's keystr has no '/' between parts. Once the first two parts are seen
    // it is clear which of the forms this is.
    std::optional<bool> slashes;
    while (at_ < text_.size()) {
      if (!parts.empty()) {
        const bool slash = text_[at_] == '/';
        if (slashes.has_value() && *slashes != slash) {
          return Error(slash ? "'/' in the JAX form" : "expected '/'");
        }
        if (!slash && (text_[at_] != '[' && text_[at_] != '.')) {
          return Error("expected '/'");
        }
        slashes = slash;
        if (slash) ++at_;
      } else if (text_[0] != '[' && text_[0] != '.') {
        slashes = true;
      }
      PathPart part;
      if (!ReadPart(&part)) return Error(fault_);
      parts.push_back(std::move(part));
    }
    Path path(std::move(parts));
    if (absl::Status status = path.Validate(); !status.ok()) return status;
    return path;
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("path text, offset %d: %s", at_, what));
  }

  bool Fail(const char* what) {
    fault_ = what;
    return false;
  }

  bool Peek(char c) const { return at_ < text_.size() && text_[at_] == c; }

  bool Take(char c) {
    if (!Peek(c)) return false;
    ++at_;
    return true;
  }

  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool ReadPart(PathPart* part) {
    if (at_ == text_.size()) return Fail("a part is missing");
    switch (text_[at_]) {
      case '[':
        ++at_;
        return ReadBracket(part);
      case '<':
        ++at_;
        part->kind = PartKind::kFlattened;
        if (!ReadIndex(&part->key)) return false;
        return Take('>') || Fail("expected '>'");
      case '{':
        ++at_;
        part->kind = PartKind::kDictKey;
        if (Peek('"')) return Fail("a str key stands without braces");
        if (!ReadLiteral(0, &part->key)) return false;
        return Take('}') || Fail("expected '}'");
      case '.':
        ++at_;
        part->kind = PartKind::kAttribute;
        return ReadName(/*dots=*/false, &part->key);
      default:
        part->kind = PartKind::kDictKey;
        return ReadName(/*dots=*/true, &part->key);
    }
  }

  // "[3]" is an index in both forms; anything else in brackets is JAX's.
  bool ReadBracket(PathPart* part) {
    if (TakeWord("<flat index ")) {
      part->kind = PartKind::kFlattened;
      if (!ReadIndex(&part->key)) return false;
      return TakeWord(">]") || Fail("expected '>]'");
    }
    if (!ReadLiteral(0, &part->key)) return false;
    const auto* index = std::get_if<std::int64_t>(&part->key.value);
    part->kind =
        index != nullptr && *index >= 0 ? PartKind::kIndex : PartKind::kDictKey;
    return Take(']') || Fail("expected ']'");
  }

  bool ReadIndex(Key* key) {
    if (at_ == text_.size() || !IsDigit(text_[at_])) {
      return Fail("expected a number");
    }
    if (!ReadNumber(key)) return false;
    return std::holds_alternative<std::int64_t>(key->value) ||
           Fail("an index is not an int");
  }

  bool ReadName(bool dots, Key* key) {
    std::string name;
    if (Peek('"')) {
      if (!ReadQuoted(/*bytes=*/false, &name)) return false;
    } else {
      const std::size_t begin = at_;
      while (at_ < text_.size() &&
             (schema::IsNameChar(text_[at_]) ||
              (dots && at_ > begin && text_[at_] == '.'))) {
        ++at_;
      }
      if (at_ == begin) return Fail("expected a name");
      name = text_.substr(begin, at_ - begin);
    }
    key->value = std::move(name);
    return true;
  }

  bool ReadLiteral(int depth, Key* key) {
    if (at_ == text_.size()) return Fail("a key is missing");
    if (TakeWord("null") || TakeWord("None")) {
      key->value = Key::None{};
      return true;
    }
    if (TakeWord("true") || TakeWord("True")) {
      key->value = true;
      return true;
    }
    if (TakeWord("false") || TakeWord("False")) {
      key->value = false;
      return true;
    }
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      std::string text;
      if (!ReadQuoted(/*bytes=*/false, &text)) return false;
      key->value = std::move(text);
      return true;
    }
    if (c == 'b' && at_ + 1 < text_.size() &&
        (text_[at_ + 1] == '"' || text_[at_ + 1] == '\'')) {
      ++at_;
      Key::Bytes bytes;
      if (!ReadQuoted(/*bytes=*/true, &bytes.value)) return false;
      key->value = std::move(bytes);
      return true;
    }
    if (c == '(') {
      ++at_;
      return ReadTuple(depth, key);
    }
    return ReadNumber(key);
  }

  bool ReadTuple(int depth, Key* key) {
    if (depth >= schema::kMaxPathDepth)
      return Fail("tuples are nested too deeply");
    Key::Tuple tuple;
    while (!Take(')')) {
      Key element;
      if (!ReadLiteral(depth + 1, &element)) return false;
      tuple.push_back(std::move(element));
      if (Take(',')) {
        Take(' ');
      } else if (!Peek(')')) {
        return Fail("expected ',' or ')'");
      }
    }
    key->value = std::move(tuple);
    return true;
  }

  bool ReadNumber(Key* key) {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (schema::IsNameChar(text_[at_]) || text_[at_] == '+' ||
            text_[at_] == '.' || text_[at_] == ':')) {
      ++at_;
    }
    const std::string_view token = text_.substr(begin, at_ - begin);
    at_ = begin;
    if (!ParseNumber(token, key)) return Fail("expected a key");
    at_ = begin + token.size();
    return true;
  }

  static bool ParseNumber(std::string_view token, Key* key) {
    const char* const end = token.data() + token.size();
    if (token.starts_with("nan:")) {
      std::uint64_t bits = 0;
      const auto [stop, error] =
          std::from_chars(token.data() + 4, end, bits, 16);
      const auto value = std::bit_cast<double>(bits);
      key->value = value;
      return error == std::errc() && stop == end && token.size() == 20 &&
             value != value;
    }
    if (token == "nan") {
      key->value = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
      return true;
    }
    const std::string_view digits = token.substr(token.starts_with('-'));
    if (digits.empty()) return false;
    if (digits.find_first_not_of("0123456789") == std::string_view::npos) {
      if (digits.size() > 1 && digits.front() == '0') return false;
      if (token == "-0") return false;
      std::int64_t value = 0;
      const auto [stop, error] = std::from_chars(token.data(), end, value);
      key->value = value;
      return error == std::errc() && stop == end;
    }
    if (!IsDigit(digits.front()) && digits != "inf") return false;
    double value = 0;
    const auto [stop, error] = std::from_chars(token.data(), end, value);
    key->value = value;
    return error == std::errc() && stop == end;
  }

  // A string of JSON or Python, in double or single quotes.
  bool ReadQuoted(bool bytes, std::string* out) {
    const char quote = text_[at_++];
    while (true) {
      if (at_ == text_.size()) return Fail("a quoted string has no end");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        return Fail("a control character in a quoted string");
      }
      if (bytes && static_cast<unsigned char>(c) >= 0x80) {
        return Fail("a character that is not ASCII in bytes");
      }
      ++at_;
      if (c == quote) return true;
      if (c != '\\') {
        out->push_back(c);
      } else if (!ReadEscape(bytes, out)) {
        return false;
      }
    }
  }

  bool ReadEscape(bool bytes, std::string* out) {
    if (at_ == text_.size()) return Fail("a quoted string has no end");
    const char c = text_[at_++];
    static constexpr std::string_view kNames = "\"'\\/bfnrt";
    static constexpr std::string_view kValues = "\"'\\/\b\f\n\r\t";
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
      out->push_back(kValues[i]);
      return true;
    }
    std::uint32_t code = 0;
    if (c == 'x') {
      if (!ReadHex(2, &code)) return false;
      if (bytes) {
        out->push_back(static_cast<char>(code));
        return true;
      }
    } else if (c == 'u' && !bytes) {
      if (!ReadHex(4, &code)) return false;
      if (code >= 0xd800 && code < 0xdc00 && TakeWord("\\u")) {
        std::uint32_t low = 0;
        if (!ReadHex(4, &low)) return false;
        if (low < 0xdc00 || low >= 0xe000) return Fail("half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
    } else if (c == 'U' && !bytes) {
      if (!ReadHex(8, &code)) return false;
    } else {
      --at_;
      return Fail("an unknown escape");
    }
    return schema::AppendUtf8(code, out) ||
           Fail("an escape that is no character");
  }

  bool ReadHex(std::size_t digits, std::uint32_t* value) {
    const std::string_view token = text_.substr(at_, digits);
    const auto [stop, error] =
        std::from_chars(token.data(), token.data() + token.size(), *value, 16);
    if (error != std::errc() || token.size() != digits ||
        stop != token.data() + token.size()) {
      return Fail("expected hexadecimal digits");
    }
    at_ += digits;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* fault_ = "";
};

}  // namespace

absl::StatusOr<Path> Path::Parse(std::string_view text) {
  return Parser(text).Run();
}

absl::StatusOr<const Path*> PathRef::Get(std::optional<Path>* parsed) const {
  if (path_ != nullptr) return path_;
  absl::StatusOr<Path> path = Path::Parse(text_);
  if (!path.ok()) {
    return absl::Status(path.status().code(),
                        absl::StrFormat("%s: %s", schema::Quoted(text_),
                                        path.status().message()));
  }
  *parsed = *std::move(path);
  return &**parsed;
}

}  // namespace ckptree
