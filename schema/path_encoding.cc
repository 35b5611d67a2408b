// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf, when a tree page is read.

#include "schema/path_encoding.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/big_endian.h"
#include "ckptree/path.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree::schema {
namespace {

// First bytes of keys. ON DISK: never renumber or reuse one. All are above the
// end of a tuple and of a string, so that the shorter one comes first.
constexpr unsigned char kEnd = 0x00;
constexpr unsigned char kEscape = 0x01;  // Then 1 for 0x00, 2 for 0x01.
constexpr unsigned char kNoneTag = 0x01;
constexpr unsigned char kFalseTag = 0x02;
constexpr unsigned char kTrueTag = 0x03;
constexpr unsigned char kZeroTag = 0x10;  // +- bytes of an int: 0x08 ... 0x18.
constexpr unsigned char kFloatTag = 0x20;
constexpr unsigned char kStrTag = 0x21;
constexpr unsigned char kBytesTag = 0x22;
constexpr unsigned char kTupleTag = 0x23;

constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;

void Put(unsigned char byte, std::string* out) {
  out->push_back(static_cast<char>(byte));
}

// How many bytes a magnitude takes: 0 for 0.
int BytesOf(std::uint64_t magnitude) {
  return static_cast<int>((std::bit_width(magnitude) + 7) / 8);
}

void PutInt(std::int64_t value, std::string* out) {
  const bool negative = value < 0;
  const std::uint64_t magnitude = negative
                                      ? ~static_cast<std::uint64_t>(value) + 1
                                      : static_cast<std::uint64_t>(value);
  const int bytes = BytesOf(magnitude);
  Put(static_cast<unsigned char>(negative ? kZeroTag - bytes
                                          : kZeroTag + bytes),
      out);
  const std::uint64_t coded = negative ? ~magnitude : magnitude;
  for (int i = bytes; i-- > 0;) {
    Put(static_cast<unsigned char>(coded >> (8 * i)), out);
  }
}

void PutFloat(double value, std::string* out) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  Put(kFloatTag, out);
  base::AppendBig((bits & kSignBit) != 0 ? ~bits : bits | kSignBit, out);
}

void PutText(std::string_view text, std::string* out) {
  const auto is_escaped = [](char c) {
    return static_cast<unsigned char>(c) <= kEscape;
  };
  while (true) {
    // Nearly always all of it.
    const auto plain = static_cast<std::size_t>(
        std::find_if(text.begin(), text.end(), is_escaped) - text.begin());
    out->append(text, 0, plain);
    if (plain == text.size()) break;
    Put(kEscape, out);
    Put(static_cast<unsigned char>(text[plain] + 1), out);
    text.remove_prefix(plain + 1);
  }
  Put(kEnd, out);
}

void PutKey(const Key& key, std::string* out) {
  struct Visitor {
    std::string* out;
    void operator()(const Key::None&) const { Put(kNoneTag, out); }
    void operator()(bool value) const {
      Put(value ? kTrueTag : kFalseTag, out);
    }
    void operator()(std::int64_t value) const { PutInt(value, out); }
    void operator()(double value) const { PutFloat(value, out); }
    void operator()(const std::string& value) const {
      Put(kStrTag, out);
      PutText(value, out);
    }
    void operator()(const Key::Bytes& bytes) const {
      Put(kBytesTag, out);
      PutText(bytes.value, out);
    }
    void operator()(const Key::Tuple& tuple) const {
      Put(kTupleTag, out);
      for (const Key& element : tuple) PutKey(element, out);
      Put(kEnd, out);
    }
  };
  std::visit(Visitor{out}, key.value);
}

// Reads from the front of `in_`; functions return a fault or null.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  bool done() const { return in_.empty(); }

  unsigned char Take() {
    const auto byte = static_cast<unsigned char>(in_.front());
    in_.remove_prefix(1);
    return byte;
  }

  // `key` may be null.
  const char* ReadKey(int depth, Key* key, unsigned char* tag_out = nullptr) {
    if (in_.empty()) return "a key is missing";
    const unsigned char tag = Take();
    if (tag_out != nullptr) *tag_out = tag;
    switch (tag) {
      case kNoneTag:
        return Set(key, Key::None{});
      case kFalseTag:
        return Set(key, false);
      case kTrueTag:
        return Set(key, true);
      case kFloatTag:
        return ReadFloat(key);
      case kStrTag:
      case kBytesTag:
        return ReadText(tag == kStrTag, key);
      case kTupleTag:
        return ReadTuple(depth, key);
      default:
        if (tag >= kZeroTag - 8 && tag <= kZeroTag + 8) {
          return ReadInt(tag, key);
        }
        return "an unknown kind of key";
    }
  }

 private:
  template <typename T>
  static const char* Set(Key* key, T value) {
    if (key != nullptr) key->value = std::move(value);
    return nullptr;
  }

  const char* ReadInt(unsigned char tag, Key* key) {
    const bool negative = tag < kZeroTag;
    const int bytes = negative ? kZeroTag - tag : tag - kZeroTag;
    if (in_.size() < static_cast<std::size_t>(bytes)) {
      return "an integer is cut off";
    }
    std::uint64_t magnitude = 0;
    for (int i = 0; i < bytes; ++i) {
      const unsigned char byte = Take();
      magnitude = magnitude << 8 |
                  (negative ? static_cast<unsigned char>(~byte) : byte);
    }
    if (BytesOf(magnitude) != bytes) {
      return "an integer has more bytes than it needs";
    }
    if (magnitude > (negative ? kSignBit : kSignBit - 1)) {
      return "an integer is out of range";
    }
    return Set(
        key, static_cast<std::int64_t>(negative ? ~magnitude + 1 : magnitude));
  }

  const char* ReadFloat(Key* key) {
    if (in_.size() < 8) return "a float is cut off";
    const auto coded = base::ReadBig<std::uint64_t>(in_, 0);
    in_.remove_prefix(8);
    return Set(key, std::bit_cast<double>(
                        (coded & kSignBit) != 0 ? coded ^ kSignBit : ~coded));
  }

  const char* ReadText(bool is_str, Key* key) {
    const void* end = std::memchr(in_.data(), kEnd, in_.size());
    if (end == nullptr) return "a string has no end";
    const std::string_view raw = in_.substr(
        0,
        static_cast<std::size_t>(static_cast<const char*>(end) - in_.data()));
    in_.remove_prefix(raw.size() + 1);
    bool escapes = false;
    bool ascii = true;
    for (const char c : raw) {
      escapes |= static_cast<unsigned char>(c) == kEscape;
      ascii &= static_cast<unsigned char>(c) < 0x80;
    }
    // An escape is as good UTF-8 as what it stands for.
    if (is_str && !ascii && !IsUtf8(raw)) return "a str is not UTF-8";
    std::string text;
    if (!escapes) {
      if (key != nullptr) text.assign(raw);
    } else {
      for (std::size_t i = 0; i < raw.size(); ++i) {
        if (static_cast<unsigned char>(raw[i]) != kEscape) {
          text.push_back(raw[i]);
          continue;
        }
        ++i;
        if (i == raw.size() || raw[i] < 1 || raw[i] > 2) {
          return "a string has an unknown escape";
        }
        text.push_back(static_cast<char>(raw[i] - 1));
      }
    }
    return is_str ? Set(key, std::move(text))
                  : Set(key, Key::Bytes{std::move(text)});
  }

  const char* ReadTuple(int depth, Key* key) {
    if (depth >= kMaxPathDepth) return "tuples are nested too deeply";
    Key::Tuple elements;
    while (true) {
      if (in_.empty()) return "a tuple has no end";
      if (static_cast<unsigned char>(in_.front()) == kEnd) break;
      Key element;
      const char* fault =
          ReadKey(depth + 1, key == nullptr ? nullptr : &element);
      if (fault != nullptr) return fault;
      if (key != nullptr) elements.push_back(std::move(element));
    }
    Take();
    return Set(key, std::move(elements));
  }

  std::string_view in_;
};

const char* KeyFault(const Key& key, int depth) {
  if (const auto* text = std::get_if<std::string>(&key.value)) {
    return IsUtf8(*text) ? nullptr : "a str is not UTF-8";
  }
  if (const auto* tuple = std::get_if<Key::Tuple>(&key.value)) {
    if (depth >= kMaxPathDepth) return "tuples are nested too deeply";
    for (const Key& element : *tuple) {
      if (const char* fault = KeyFault(element, depth + 1)) return fault;
    }
  }
  return nullptr;
}

}  // namespace

void AppendPartBytes(const PathPart& part, std::string* out) {
  Put(static_cast<unsigned char>(part.kind), out);
  PutKey(part.key, out);
}

std::size_t MostPathBytes(const std::vector<PathPart>& parts) {
  // A kind and a tag, and an end or eight bytes of a number.
  constexpr std::size_t kMostOfPart = 10;
  std::size_t bytes = parts.size() * kMostOfPart;
  for (const PathPart& part : parts) {
    // Each byte of a text may be escaped.
    if (const auto* text = std::get_if<std::string>(&part.key.value)) {
      bytes += 2 * text->size();
    } else if (const auto* raw = std::get_if<Key::Bytes>(&part.key.value)) {
      bytes += 2 * raw->value.size();
    } else if (std::holds_alternative<Key::Tuple>(part.key.value)) {
      return std::numeric_limits<std::size_t>::max();
    }
  }
  return bytes;
}

const char* ReadPathBytes(std::string_view bytes,
                          std::vector<PathPart>* parts) {
  if (static_cast<std::int64_t>(bytes.size()) > kMaxPathBytes) {
    return "it is longer than a path may be";
  }
  Reader reader(bytes);
  for (int depth = 0; !reader.done(); ++depth) {
    if (depth >= kMaxPathDepth) return "it has more parts than a path may have";
    const unsigned char kind = reader.Take();
    if (kind < static_cast<unsigned char>(PartKind::kDictKey) ||
        kind > static_cast<unsigned char>(PartKind::kFlattened)) {
      return "an unknown kind of part";
    }
    PathPart part;
    part.kind = static_cast<PartKind>(kind);
    unsigned char tag = 0;
    const char* fault =
        reader.ReadKey(0, parts == nullptr ? nullptr : &part.key, &tag);
    if (fault != nullptr) return fault;
    switch (part.kind) {
      case PartKind::kDictKey:
        break;
      case PartKind::kAttribute:
        if (tag != kStrTag) return "an attribute is not a str";
        break;
      case PartKind::kIndex:
      case PartKind::kFlattened:
        if (tag < kZeroTag || tag > kZeroTag + 8) {
          return "an index is not an int of zero or more";
        }
        break;
    }
    if (parts != nullptr) parts->push_back(std::move(part));
  }
  return nullptr;
}

const char* PartFault(const PathPart& part) {
  switch (part.kind) {
    case PartKind::kDictKey:
      return KeyFault(part.key, 0);
    case PartKind::kAttribute:
      if (!std::holds_alternative<std::string>(part.key.value)) {
        return "an attribute is not a str";
      }
      return KeyFault(part.key, 0);
    case PartKind::kIndex:
    case PartKind::kFlattened: {
      const auto* index = std::get_if<std::int64_t>(&part.key.value);
      if (index == nullptr || *index < 0) {
        return "an index is not an int of zero or more";
      }
      return nullptr;
    }
  }
  return "an unknown kind of part";
}

}  // namespace ckptree::schema
