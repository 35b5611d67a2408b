// SPDX-License-Identifier: Apache-2.0

#include "tools/output/table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

// JSON text of non-finite numbers.
void NameNonFinite(Json* value) {
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (std::isnan(number)) {
      *value = "NaN";
    } else if (std::isinf(number)) {
      *value = number < 0 ? "-Infinity" : "Infinity";
    }
  } else if (value->is_structured()) {
    for (Json& member : *value) NameNonFinite(&member);
  }
}

}  // namespace

std::string TitleAsName(const Column& column) {
  std::string name = absl::AsciiStrToLower(column.title);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

Cell TextCell(std::string_view text, Tone tone) {
  return {Json(std::string(text)), Escape(text), tone};
}
Cell CountCell(std::uint64_t count) {
  return {Json(count), absl::StrCat(count)};
}
Cell StepCell(std::int64_t step) { return {Json(step), absl::StrCat(step)}; }
Cell BytesCell(std::uint64_t bytes, bool exact) {
  return {Json(bytes), SizeText(bytes, exact)};
}
Cell NumberCell(double value) {
  return {Json(value), ShortNumberText(value),
          std::isfinite(value) ? Tone::kPlain : Tone::kBad};
}
Cell NoCell() { return {Json(), ""}; }

void Table::MakeRows() {
  rows.reserve(rows.size() + late_rows);
  for (std::size_t row = 0; row < late_rows; ++row) {
    std::vector<Cell> cells;
    cells.reserve(columns.size());
    make_row(row, &cells);
    rows.push_back(std::move(cells));
  }
  late_rows = 0;
}

bool TableOptions::Shows(const Column& column) const {
  const bool people = format == Format::kTable || format == Format::kMarkdown;
  if (format == Format::kJson || format == Format::kNdjson) return column.json;
  return column.flat && (people ? !column.title.empty() : !column.drawn);
}

bool TableOptions::Needs(const Column& column) const {
  return Mentions(column.name) || Mentions(TitleAsName(column)) ||
         (columns.empty() && Shows(column));
}

std::vector<bool> TableOptions::NeedsOf(const std::vector<Column>& all) const {
  std::vector<bool> needed;
  for (const Column& column : all) needed.push_back(Needs(column));
  return needed;
}

bool TableOptions::NeedsValues(const Column& column) const {
  const bool people = format == Format::kTable || format == Format::kMarkdown;
  return !people || (where && Mentions(column.name)) ||
         (!sort.empty() &&
          (sort == column.name || sort == TitleAsName(column)));
}

bool TableOptions::Mentions(std::string_view column) const {
  // A column without a title has no other name.
  if (column.empty()) return false;
  if (sort == column) return true;
  if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
    return true;
  }
  if (!where) return false;
  const std::vector<std::string> names = where->Names();
  return std::find(names.begin(), names.end(), column) != names.end();
}

std::string JsonText(Json value, bool pretty) {
  NameNonFinite(&value);
  const std::string text =
      value.dump(pretty ? 2 : -1, ' ', /*ensure_ascii=*/false,
                 Json::error_handler_t::replace);
  // What JSON itself lets through: DEL, C1 and marks that reorder text. They
  // occur inside strings only.
  std::string out;
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x7f) continue;
    std::size_t length = 1;
    char32_t code = lead;
    if (lead >= 0xc0) {
      length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
      code = lead & (0xffu >> (length + 1));
      for (std::size_t k = 1; k < length && i + k < text.size(); ++k) {
        code = (code << 6) | (static_cast<unsigned char>(text[i + k]) & 0x3fu);
      }
    }
    if (code < 0x10000 && Escape(text.substr(i, length))[0] == '\\') {
      out.append(text, done, i - done);
      out += absl::StrFormat("\\u%04x", static_cast<unsigned>(code));
      done = i + length;
    }
    i += length - 1;
  }
  out.append(text, done);
  return out;
}

}  // namespace ckptree::tools
