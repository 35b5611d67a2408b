// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>

#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "schema/quoted_text.h"
#include "schema/utf8.h"

namespace ckptree {
namespace {

// An attribute with a dot in it is quoted: ".a.b" are two attributes in JAX.
bool IsBare(std::string_view name, bool dots) {
  if (name.empty() || !schema::IsNameChar(name.front())) return false;
  for (const char c : name) {
    if (!schema::IsNameChar(c) && !(dots && c == '.')) return false;
  }
  return true;
}

void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  while (!text.empty()) {
    const char c = text.front();
    const int length = schema::Utf8Length(text);
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(out, "\\u%04x", byte);
    } else if (length == 2 && byte == 0xc2 &&
               static_cast<unsigned char>(text[1]) < 0xa0) {
      // U+0080 ... U+009F are control characters too.
      absl::StrAppendFormat(out, "\\u%04x",
                            static_cast<unsigned char>(text[1]));
    } else if (length == 0) {
      // Not UTF-8: Validate() refuses it, but it must be possible to name it.
      out->append("\\ufffd");
    } else {
      out->append(text.substr(0, static_cast<std::size_t>(length)));
    }
    text.remove_prefix(static_cast<std::size_t>(length == 0 ? 1 : length));
  }
  out->push_back('"');
}

void AppendBytes(std::string_view bytes, std::string* out) {
  out->append("b\"");
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      absl::StrAppendFormat(out, "\\x%02x", byte);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

void AppendFloat(double value, std::string* out) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    if (bits == 0x7ff8000000000000) {
      out->append("nan");
    } else {
      absl::StrAppendFormat(out, "nan:%016x", bits);
    }
    return;
  }
  std::array<char, 40> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string_view digits(buffer.data(),
                                static_cast<std::size_t>(end - buffer.data()));
  out->append(digits);
  // "1" would read as an int.
  if (digits.find_first_of(".en") == std::string_view::npos) {
    out->append(".0");
  }
}

void AppendLiteral(const Key& key, std::string* out) {
  struct Visitor {
    std::string* out;
    void operator()(const Key::None&) const { out->append("null"); }
    void operator()(bool value) const { out->append(value ? "true" : "false"); }
    void operator()(std::int64_t value) const {
      out->append(std::to_string(value));
    }
    void operator()(double value) const { AppendFloat(value, out); }
    void operator()(const std::string& value) const {
      AppendQuoted(value, out);
    }
    void operator()(const Key::Bytes& bytes) const {
      AppendBytes(bytes.value, out);
    }
    void operator()(const Key::Tuple& tuple) const {
      out->push_back('(');
      for (std::size_t i = 0; i < tuple.size(); ++i) {
        if (i > 0) out->push_back(',');
        AppendLiteral(tuple[i], out);
      }
      if (tuple.size() == 1) out->push_back(',');
      out->push_back(')');
    }
  };
  std::visit(Visitor{out}, key.value);
}

void AppendName(std::string_view name, bool dots, std::string* out) {
  if (IsBare(name, dots)) {
    out->append(name);
  } else {
    AppendQuoted(name, out);
  }
}

void AppendPart(const PathPart& part, std::string* out) {
  const auto* name = std::get_if<std::string>(&part.key.value);
  switch (part.kind) {
    case PartKind::kDictKey:
      if (name != nullptr) {
        AppendName(*name, /*dots=*/true, out);
      } else {
        out->push_back('{');
        AppendLiteral(part.key, out);
        out->push_back('}');
      }
      return;
    case PartKind::kIndex:
      out->push_back('[');
      AppendLiteral(part.key, out);
      out->push_back(']');
      return;
    case PartKind::kAttribute:
      out->push_back('.');
      if (name != nullptr) {
        AppendName(*name, /*dots=*/false, out);
      } else {
        AppendLiteral(part.key, out);
      }
      return;
    case PartKind::kFlattened:
      out->push_back('<');
      AppendLiteral(part.key, out);
      out->push_back('>');
      return;
  }
}

}  // namespace

std::string Path::Text() const {
  std::string out;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (i > 0) out.push_back('/');
    AppendPart(parts_[i], &out);
  }
  return out;
}

}  // namespace ckptree
