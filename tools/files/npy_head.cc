// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/files/head.h"
#include "tools/output/npy.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::uint64_t kMostNpyHeadBytes = 1 << 20;

// Reads the literal of a Python dict that NumPy writes. Confined to one thread.
class HeadText {
 public:
  explicit HeadText(std::string_view text) : text_(text) {}

  bool Take(char c) {
    SkipBlanks();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::optional<std::string> Quoted() {
    SkipBlanks();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) {
      return std::nullopt;
    }
    const std::size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string quoted(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return quoted;
  }
  std::string Word() {
    SkipBlanks();
    std::size_t end = 0;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0)) {
      ++end;
    }
    std::string word(text_.substr(0, end));
    text_.remove_prefix(end);
    return word;
  }
  // True where there is nothing more, or a comment.
  bool AtEnd() {
    SkipBlanks();
    return text_.empty() || text_[0] == '#';
  }
  // To the bracket that closes the one that it begins with.
  std::optional<std::string> Bracketed() {
    SkipBlanks();
    if (text_.empty() || text_[0] != '[') return std::nullopt;
    int depth = 0;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '[') ++depth;
      if (text_[i] == ']' && --depth == 0) {
        std::string all(text_.substr(0, i + 1));
        text_.remove_prefix(i + 1);
        return all;
      }
    }
    return std::nullopt;
  }

 private:
  void SkipBlanks() {
    const std::size_t begin = text_.find_first_not_of(" \t\n");
    text_.remove_prefix(std::min(begin, text_.size()));
  }
  std::string_view text_;
};

// `head`: with the note of the type that an export here has behind it.
std::optional<DType> NpyDType(std::string_view descr, std::string_view head) {
  // NumPy's own types come first. bfloat16 is written without a name, but with
  // the order of its bytes, which bytes without a meaning (`|V2`) do not have.
  for (const DType dtype : AllDTypes()) {
    if (NpyDescr(dtype) == descr && descr.find('V') == descr.npos) {
      return dtype;
    }
  }
  for (const DType dtype : AllDTypes()) {
    const std::string note = NpyNote(dtype);
    if (note.empty() || NpyDescr(dtype) != descr) continue;
    // Spaces and a line end fill the rest.
    std::string_view rest = head;
    while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\n')) {
      rest.remove_suffix(1);
    }
    if (rest.ends_with("} " + note)) return dtype;
  }
  if (descr == "<V2") return DType::kBfloat16;
  if (descr.size() == 3 && descr[2] == '1') {
    // One byte has no order.
    if (descr[1] == 'b') return DType::kBool;
    if (descr[1] == 'i') return DType::kInt8;
    if (descr[1] == 'u') return DType::kUint8;
  }
  return std::nullopt;
}

struct NpyText {
  std::string descr;
  bool fortran = false;
  Shape shape;
};

std::optional<Shape> NpyShape(HeadText* text) {
  if (!text->Take('(')) return std::nullopt;
  Shape shape;
  while (!text->Take(')')) {
    std::string word = text->Word();
    if (word.ends_with('L')) word.pop_back();  // Of Python 2.
    std::int64_t dim = 0;
    if (!absl::SimpleAtoi(word, &dim) || dim < 0 || shape.size() == 64) {
      return std::nullopt;
    }
    shape.push_back(dim);
    if (!text->Take(',')) {
      // `(1)` is a number to Python, and no tuple.
      if (!text->Take(')') || shape.size() == 1) return std::nullopt;
      break;
    }
  }
  return shape;
}

std::optional<NpyText> ParseNpyText(std::string_view bytes) {
  HeadText text(bytes);
  NpyText head;
  int seen = 0;
  if (!text.Take('{')) return std::nullopt;
  while (!text.Take('}')) {
    const std::optional<std::string> key = text.Quoted();
    if (!key || !text.Take(':')) return std::nullopt;
    if (*key == "descr") {
      std::optional<std::string> descr = text.Quoted();
      if (!descr) descr = text.Bracketed();  // Of several fields.
      if (!descr) return std::nullopt;
      head.descr = *std::move(descr);
      seen |= 1;
    } else if (*key == "fortran_order") {
      const std::string word = text.Word();
      if (word != "True" && word != "False") return std::nullopt;
      head.fortran = word == "True";
      seen |= 2;
    } else if (*key == "shape") {
      std::optional<Shape> shape = NpyShape(&text);
      if (!shape) return std::nullopt;
      head.shape = *std::move(shape);
      seen |= 4;
    } else {
      return std::nullopt;
    }
    const bool more = text.Take(',');
    if (!more && !text.Take('}')) return std::nullopt;
    if (seen != 7) continue;
    if (more && !text.Take('}')) return std::nullopt;
    break;
  }
  if (seen != 7 || !text.AtEnd()) return std::nullopt;
  return head;
}

}  // namespace

absl::StatusOr<FileHead> ParseNpy(std::string_view bytes,
                                  std::uint64_t file_bytes) {
  if (file_bytes < 12) return absl::InvalidArgumentError("it is too short");
  if (bytes.size() < 12) return absl::OutOfRangeError("more");
  if (!bytes.starts_with("\x93NUMPY")) {
    return absl::InvalidArgumentError("it does not begin as an npy file");
  }
  const auto byte = [&bytes](std::size_t i) {
    return std::uint64_t{static_cast<std::uint8_t>(bytes[i])};
  };
  if (byte(6) < 1 || byte(6) > 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its version %d is not known here", byte(6)));
  }
  const std::size_t lead = byte(6) == 1 ? 10 : 12;
  std::uint64_t length = byte(8) | byte(9) << 8;
  if (lead == 12) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMostNpyHeadBytes || length > file_bytes - lead) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its head of %d bytes does not fit in it", length));
  }
  if (bytes.size() < lead + length) return absl::OutOfRangeError("more");
  std::optional<NpyText> text = ParseNpyText(bytes.substr(lead, length));
  if (!text) {
    return absl::InvalidArgumentError("its head is not that of an npy file");
  }
  FileArray array;
  array.type = text->descr;
  array.fortran = text->fortran;
  array.offset = lead + length;
  array.bytes = file_bytes - array.offset;
  const std::optional<DType> dtype =
      NpyDType(text->descr, bytes.substr(lead, length));
  if (!dtype) {
    array.why_not = text->descr.starts_with('>')
                        ? "its numbers are big-endian"
                        : absl::StrFormat("its type %s is not known here",
                                          Escape(text->descr.substr(0, 40)));
  }
  array.name = "array";
  if (absl::Status status =
          SetLeaf(&array, dtype.value_or(DType::kNone), std::move(text->shape));
      !status.ok()) {
    return status;
  }
  FileHead head;
  head.arrays.push_back(std::move(array));
  return head;
}

}  // namespace ckptree::tools
