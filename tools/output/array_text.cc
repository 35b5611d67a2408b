// SPDX-License-Identifier: Apache-2.0

#include "tools/output/array_text.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/output/element_text.h"

namespace ckptree::tools {
namespace {

class Printer {
 public:
  Printer(DType dtype, const Shape& shape, const Shape& kept,
          std::span<const std::byte> elements, int width)
      : shape_(shape), kept_(kept), line_width_(width) {
    const auto bytes = static_cast<std::size_t>(ElementBytes(dtype));
    texts_.reserve(elements.size() / bytes);
    for (std::size_t at = 0; at + bytes <= elements.size(); at += bytes) {
      texts_.push_back(ElementText(dtype, elements.data() + at));
      cell_width_ = std::max(cell_width_, texts_.back().size());
    }
  }

  std::string Print() {
    if (texts_.empty()) return "[]";
    if (shape_.empty()) return texts_[0];
    Dimension(0);
    return std::move(out_);
  }

 private:
  bool Elided(std::size_t d) const { return kept_[d] < shape_[d]; }

  void Dimension(std::size_t d) {
    out_ += '[';
    if (d + 1 == shape_.size()) {
      Row(d);
    } else {
      const std::string indent(d + 1, ' ');
      // A blank line more for each level above the innermost two.
      const std::string gap(shape_.size() - d - 1, '\n');
      for (std::int64_t i = 0; i < kept_[d]; ++i) {
        if (i > 0) out_ += gap + indent;
        if (Elided(d) && i == kEdgeElements) out_ += "..." + gap + indent;
        Dimension(d + 1);
      }
    }
    out_ += ']';
  }

  void Row(std::size_t d) {
    const std::string indent(d + 1, ' ');
    std::size_t column = indent.size();
    bool first = true;
    const auto put = [&](const std::string& text, std::size_t width) {
      const std::size_t needed = std::max(width, text.size());
      if (!first &&
          column + 1 + needed > static_cast<std::size_t>(line_width_) - 1) {
        out_ += "\n" + indent;
        column = indent.size();
      } else if (!first) {
        out_ += ' ';
        ++column;
      }
      out_.append(needed - text.size(), ' ');
      out_ += text;
      column += needed;
      first = false;
    };
    for (std::int64_t i = 0; i < kept_[d]; ++i) {
      if (Elided(d) && i == kEdgeElements) put("...", 3);
      put(texts_[next_++], cell_width_);
    }
  }

  const Shape& shape_;
  const Shape& kept_;
  int line_width_;
  std::vector<std::string> texts_;
  std::size_t cell_width_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

// Of an array without elements no more brackets than these are written: its
// shape says all there is.
constexpr std::int64_t kMostEmpty = std::int64_t{1} << 20;

bool HasTooManyEmpty(const Shape& shape) {
  std::int64_t rows = 1;
  for (const std::int64_t dim : shape) {
    if (dim == 0) return rows > kMostEmpty;
    rows = std::min(rows, kMostEmpty + 1) *
           std::min(dim, kMostEmpty + 1);  // No overflow.
  }
  return false;
}

void AppendJson(DType dtype, const Shape& shape, std::size_t d,
                const std::byte*& at, std::string* out) {
  if (d == shape.size()) {
    *out += ElementJson(dtype, at);
    at += ElementBytes(dtype);
    return;
  }
  *out += '[';
  for (std::int64_t i = 0; i < shape[d]; ++i) {
    if (i > 0) *out += ',';
    AppendJson(dtype, shape, d + 1, at, out);
  }
  *out += ']';
}

}  // namespace

std::string ArrayText(DType dtype, const Shape& shape, const Shape& kept,
                      std::span<const std::byte> elements, int width) {
  return Printer(dtype, shape, kept, elements, std::max(width, 20)).Print();
}

std::string ArrayJson(DType dtype, const Shape& shape,
                      std::span<const std::byte> elements) {
  if (HasTooManyEmpty(shape)) return "[]";
  std::string out;
  const std::byte* at = elements.data();
  AppendJson(dtype, shape, 0, at, &out);
  return out;
}

std::string ArrayRows(DType dtype, const Shape& shape,
                      std::span<const std::byte> elements, char separator) {
  const auto bytes = static_cast<std::size_t>(ElementBytes(dtype));
  const auto count = elements.size() / bytes;
  const std::size_t columns =
      shape.size() == 2 ? static_cast<std::size_t>(shape[1]) : 1;
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += ElementData(dtype, elements.data() + i * bytes);
    out += (i + 1) % columns == 0 ? '\n' : separator;
  }
  return out;
}

}  // namespace ckptree::tools
