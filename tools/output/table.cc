// SPDX-License-Identifier: Apache-2.0

#include "tools/output/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

absl::StatusOr<std::size_t> FindColumn(const Table& table,
                                       std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == name) return i;
    names.push_back(table.columns[i].name);
  }
  const std::string nearest = Nearest(name, names);
  const std::string guess =
      nearest.empty() ? "" : absl::StrFormat(". Did you mean `%s`?", nearest);
  return WithHint(absl::InvalidArgumentError(
                      absl::StrFormat("no column `%s`%s", Escape(name), guess)),
                  "the columns are " + absl::StrJoin(names, ", "));
}

// Empty and NaN values are last in either direction.
bool Before(const Json& a, const Json& b, bool descending) {
  const auto missing = [](const Json& v) {
    return v.is_null() || (v.is_number_float() && std::isnan(v.get<double>()));
  };
  if (missing(a) || missing(b)) return !missing(a) && missing(b);
  return descending ? b < a : a < b;
}

absl::Status Filter(Table* table, const Predicate& where) {
  std::vector<std::pair<std::string, std::size_t>> columns;
  for (const std::string& name : where.Names()) {
    const absl::StatusOr<std::size_t> column = FindColumn(*table, name);
    if (!column.ok()) return column.status();
    columns.emplace_back(name, *column);
  }
  std::erase_if(table->rows, [&](const std::vector<Cell>& row) {
    return !where.Holds([&](std::string_view name) -> const Json& {
      const auto at = std::find_if(
          columns.begin(), columns.end(),
          [&](const auto& column) { return column.first == name; });
      return row[at->second].value;
    });
  });
  return absl::OkStatus();
}

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

// What CSV and Markdown show of a value.
std::string PlainText(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "";
    case Json::value_t::string:
      return Escape(value.get_ref<const std::string&>());
    case Json::value_t::number_float:
      return NumberText(value.get<double>());
    case Json::value_t::array: {
      std::string text;
      for (const Json& member : value) {
        if (!text.empty()) text += ' ';
        text += PlainText(member);
      }
      return text;
    }
    default:
      return JsonText(value, false);
  }
}

std::string Quoted(const std::string& text, char separator) {
  if (separator == '\t') return text;  // Escaped: holds none.
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Separated(const Table& table, const std::vector<std::size_t>& shown,
                      bool header, char separator) {
  std::string out;
  const auto line = [&](auto&& cell_text) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (i > 0) out += separator;
      out += Quoted(cell_text(shown[i]), separator);
    }
    out += '\n';
  };
  if (header) {
    line([&](std::size_t c) { return Escape(table.columns[c].name); });
  }
  for (const std::vector<Cell>& row : table.rows) {
    line([&](std::size_t c) { return PlainText(row[c].value); });
  }
  return out;
}

std::string Markdown(const Table& table,
                     const std::vector<std::size_t>& shown) {
  const auto safe = [](std::string text) {
    std::string out;
    for (char c : text) {
      if (c == '|' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  };
  std::string out = "|";
  for (std::size_t c : shown) {
    out += ' ';
    out += safe(Escape(table.columns[c].name));
    out += " |";
  }
  out += "\n|";
  for (std::size_t c : shown)
    out += table.columns[c].right ? " ---: |" : " --- |";
  out += '\n';
  for (const std::vector<Cell>& row : table.rows) {
    out += '|';
    for (std::size_t c : shown) {
      out += ' ';
      out += safe(row[c].text);
      out += " |";
    }
    out += '\n';
  }
  return out;
}

std::string ForPeople(const Table& table, const std::vector<std::size_t>& shown,
                      bool header, const Terminal& terminal) {
  const auto title = [&](std::size_t c) {
    const Column& column = table.columns[c];
    return column.title.empty() ? Escape(column.name) : column.title;
  };
  std::vector<int> widths;
  for (std::size_t c : shown) {
    int width = header ? DisplayWidth(title(c)) : 0;
    for (const std::vector<Cell>& row : table.rows) {
      width = std::max(width, DisplayWidth(row[c].text));
    }
    widths.push_back(width);
  }
  // Too wide: the longest column that may be shortened gives way first.
  if (terminal.is_terminal && !shown.empty()) {
    constexpr int kShortest = 12;
    int total = 2 * (static_cast<int>(shown.size()) - 1);
    for (int width : widths) total += width;
    while (total > terminal.width) {
      int* longest = nullptr;
      for (std::size_t i = 0; i < shown.size(); ++i) {
        if (table.columns[shown[i]].elide && widths[i] > kShortest &&
            (longest == nullptr || widths[i] > *longest)) {
          longest = &widths[i];
        }
      }
      if (longest == nullptr) break;
      --*longest;
      --total;
    }
  }
  std::string out;
  const auto line = [&](auto&& cell) {
    std::string text;
    std::string pending;  // Spaces: written only where more follows.
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto [full, tone] = cell(shown[i]);
      const std::string shortened =
          terminal.is_terminal ? ElideMiddle(full, widths[i], terminal.utf8)
                               : full;
      const auto pad = static_cast<std::size_t>(
          std::max(0, widths[i] - DisplayWidth(shortened)));
      if (table.columns[shown[i]].right) pending.append(pad, ' ');
      if (!shortened.empty()) {
        text += pending + Paint(shortened, tone, terminal.color);
        pending.clear();
      }
      if (!table.columns[shown[i]].right) pending.append(pad, ' ');
      pending += "  ";
    }
    out += text + '\n';
  };
  if (header) {
    line([&](std::size_t c) { return std::pair(title(c), Tone::kHeading); });
  }
  for (const std::vector<Cell>& row : table.rows) {
    line([&](std::size_t c) { return std::pair(row[c].text, row[c].tone); });
  }
  return out;
}

}  // namespace

Cell TextCell(std::string_view text, Tone tone) {
  return {Json(std::string(text)), Escape(text), tone};
}
Cell CountCell(std::uint64_t count) {
  return {Json(count), absl::StrFormat("%d", count)};
}
Cell StepCell(std::int64_t step) {
  return {Json(step), absl::StrFormat("%d", step)};
}
Cell BytesCell(std::uint64_t bytes, bool exact) {
  return {Json(bytes), SizeText(bytes, exact)};
}
Cell NumberCell(double value) {
  return {Json(value), ShortNumberText(value),
          std::isfinite(value) ? Tone::kPlain : Tone::kBad};
}
Cell NoCell() { return {Json(), ""}; }

bool TableOptions::Mentions(std::string_view column) const {
  if (sort == column) return true;
  if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
    return true;
  }
  if (!where) return false;
  const std::vector<std::string> names = where->Names();
  return std::find(names.begin(), names.end(), column) != names.end();
}

absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal) {
  if (options.where) {
    if (absl::Status status = Filter(&table, *options.where); !status.ok()) {
      return status;
    }
  }
  if (!options.sort.empty()) {
    const absl::StatusOr<std::size_t> column = FindColumn(table, options.sort);
    if (!column.ok()) return column.status();
    std::stable_sort(table.rows.begin(), table.rows.end(),
                     [&](const auto& a, const auto& b) {
                       return Before(a[*column].value, b[*column].value,
                                     options.descending);
                     });
  }
  if (options.limit &&
      static_cast<std::size_t>(*options.limit) < table.rows.size()) {
    table.rows.resize(static_cast<std::size_t>(*options.limit));
  }
  if (options.reverse) std::reverse(table.rows.begin(), table.rows.end());

  const bool json =
      options.format == Format::kJson || options.format == Format::kNdjson;
  std::vector<std::size_t> shown;
  for (const std::string& name : options.columns) {
    const absl::StatusOr<std::size_t> column = FindColumn(table, name);
    if (!column.ok()) return column.status();
    shown.push_back(*column);
  }
  if (options.columns.empty()) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const Column& column = table.columns[i];
      const bool people = options.format == Format::kTable ||
                          options.format == Format::kMarkdown;
      if (json ? column.json
               : column.flat && (!people || !column.title.empty())) {
        shown.push_back(i);
      }
    }
  }

  if (json) {
    Json rows = Json::array();
    std::string lines;
    for (const std::vector<Cell>& row : table.rows) {
      Json object = Json::object();
      for (std::size_t c : shown) {
        object[table.columns[c].name] = row[c].value;
      }
      if (options.format == Format::kNdjson) {
        lines += JsonText(object, false) + '\n';
      } else {
        rows.push_back(std::move(object));
      }
    }
    if (options.format == Format::kNdjson) return lines;
    Json document = {{"schema", table.schema}};
    for (const auto& [name, value] : table.extra.items()) {
      document[name] = value;
    }
    document[table.rows_name] = std::move(rows);
    return JsonText(document, true) + '\n';
  }
  switch (options.format) {
    case Format::kCsv:
      return Separated(table, shown, options.header, ',');
    case Format::kTsv:
      return Separated(table, shown, options.header, '\t');
    case Format::kMarkdown:
      return Markdown(table, shown);
    default:
      return ForPeople(table, shown, options.header, terminal);
  }
}

std::string JsonText(const Json& value, bool pretty) {
  Json named = value;
  NameNonFinite(&named);
  const std::string text =
      named.dump(pretty ? 2 : -1, ' ', /*ensure_ascii=*/false,
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
