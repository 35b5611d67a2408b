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
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

// "max_abs" of MAX ABS.
std::string TitleAsName(const Column& column) {
  std::string name = absl::AsciiStrToLower(column.title);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

absl::StatusOr<std::size_t> FindColumn(const Table& table,
                                       std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == name) return i;
    names.push_back(table.columns[i].name);
  }
  // Also as it is printed.
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (!name.empty() && TitleAsName(table.columns[i]) == name) return i;
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

absl::Status Filter(Table* table, Expression where) {
  std::vector<std::string> names;
  for (const Column& column : table->columns) names.push_back(column.name);
  if (absl::Status status = where.Bind(names); !status.ok()) {
    return WithHint(status, "`ckptree help where` shows what a condition is");
  }
  std::vector<std::vector<Cell>> kept;
  for (std::vector<Cell>& row : table->rows) {
    const absl::StatusOr<bool> holds =
        where.Holds([&](std::string_view name) -> const Json& {
          const auto at = std::find(names.begin(), names.end(), name);
          return row[static_cast<std::size_t>(at - names.begin())].value;
        });
    if (!holds.ok()) {
      return WithHint(holds.status(),
                      "`ckptree help where` shows what a condition is");
    }
    if (*holds) kept.push_back(std::move(row));
  }
  table->rows = std::move(kept);
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

TableOptions WithFull(TableOptions options) {
  options.full = true;
  return options;
}

// Makes `widths` of the columns `shown` fit the terminal: what may be shortened
// is, but for keys, which are to be copied; then columns go, numbers first and
// what was asked for last, from the last one on; keys give way at last. Returns
// the columns that went.
std::vector<std::size_t> Fit(const Table& table, int room,
                             std::vector<std::size_t>* shown,
                             std::vector<int>* widths) {
  constexpr int kShortest = 12;
  constexpr std::size_t kFewest = 3;
  const auto total = [&] {
    int sum = 2 * (static_cast<int>(shown->size()) - 1);
    for (const int width : *widths) sum += width;
    return sum;
  };
  const auto shorten = [&](bool keys) {
    while (total() > room) {
      int* longest = nullptr;
      for (std::size_t i = 0; i < shown->size(); ++i) {
        const Column& column = table.columns[(*shown)[i]];
        if (column.elide && (column.name == "key") == keys &&
            (*widths)[i] > kShortest &&
            (longest == nullptr || (*widths)[i] > *longest)) {
          longest = &(*widths)[i];
        }
      }
      if (longest == nullptr) return;
      --*longest;
    }
  };
  shorten(false);
  std::vector<std::size_t> gone;
  while (total() > room && shown->size() > kFewest) {
    // Numbers before notes; the first column says which row it is.
    const auto find = [&](auto&& wanted) {
      std::size_t at = shown->size() - 1;
      while (at > 0 && !wanted(table.columns[(*shown)[at]])) --at;
      return at;
    };
    std::size_t last =
        find([](const Column& c) { return c.right && !c.asked; });
    if (last == 0) {
      last = find([](const Column& c) { return c.name != "key" && !c.asked; });
    }
    if (last == 0) last = find([](const Column& c) { return c.name != "key"; });
    if (last == 0) break;
    gone.insert(gone.begin(), (*shown)[last]);
    shown->erase(shown->begin() + static_cast<std::ptrdiff_t>(last));
    widths->erase(widths->begin() + static_cast<std::ptrdiff_t>(last));
  }
  shorten(true);
  return gone;
}

std::string ForPeople(const Table& table, std::vector<std::size_t> shown,
                      const TableOptions& options, const Terminal& terminal) {
  const auto title = [&](std::size_t c) {
    const Column& column = table.columns[c];
    // Of drawings.
    if (column.title == " ") return std::string();
    return column.title.empty() ? Escape(column.name) : column.title;
  };
  // Where nobody's screen is the measure one long cell does not push all the
  // others away.
  constexpr int kWidestPadding = 72;
  const bool fits = terminal.is_terminal && !options.full;
  std::vector<int> widths;
  for (std::size_t c : shown) {
    int width = options.header ? DisplayWidth(title(c)) : 0;
    for (const std::vector<Cell>& row : table.rows) {
      const int own = DisplayWidth(row[c].text);
      const bool counts =
          fits || table.columns[c].right || own <= kWidestPadding;
      if (counts) width = std::max(width, own);
    }
    widths.push_back(width);
  }
  std::vector<std::size_t> gone;
  // Of columns that were asked for none goes.
  if (fits && !shown.empty()) {
    std::vector<std::size_t> all = shown;
    gone = Fit(table, terminal.width, &shown, &widths);
    if (!options.columns.empty() && !gone.empty()) {
      shown = std::move(all);
      return ForPeople(table, std::move(shown), WithFull(options), terminal);
    }
  }
  std::string out;
  const auto line = [&](auto&& cell) {
    std::size_t pending = 0;  // Spaces: written only where more follows.
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto& [full, tone] = cell(shown[i]);
      std::string_view text = full;
      int width = DisplayWidth(text);
      std::string shortened;
      if (fits && width > widths[i]) {
        shortened = ElideMiddle(text, widths[i], terminal.utf8);
        text = shortened;
        width = DisplayWidth(text);
      }
      const auto pad = static_cast<std::size_t>(std::max(0, widths[i] - width));
      const bool right = table.columns[shown[i]].right;
      if (right) pending += pad;
      if (!text.empty()) {
        out.append(pending, ' ');
        out += Paint(text, tone, terminal.color);
        pending = 0;
      }
      if (!right) pending += pad;
      pending += 2;
    }
    out += '\n';
  };
  if (options.header) {
    line([&](std::size_t c) { return std::pair(title(c), Tone::kHeading); });
  }
  for (const std::vector<Cell>& row : table.rows) {
    line([&](std::size_t c) {
      return std::pair<const std::string&, Tone>(row[c].text, row[c].tone);
    });
  }
  if (!gone.empty()) {
    std::vector<std::string> names;
    for (const std::size_t c : gone) {
      names.push_back(Escape(table.columns[c].name));
    }
    out += Paint(ElideMiddle(
                     "(--full also shows " + absl::StrJoin(names, ", ") + ")",
                     terminal.width, terminal.utf8),
                 Tone::kFaint, terminal.color) +
           '\n';
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

bool TableOptions::Shows(const Column& column) const {
  const bool people = format == Format::kTable || format == Format::kMarkdown;
  if (format == Format::kJson || format == Format::kNdjson) return column.json;
  return column.flat && (people ? !column.title.empty() : !column.drawn);
}

bool TableOptions::Needs(const Column& column) const {
  return Mentions(column.name) || Mentions(TitleAsName(column)) ||
         (columns.empty() && Shows(column));
}

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
      if (options.Shows(table.columns[i])) shown.push_back(i);
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
    if (!options.columns.empty()) {
      // Another shape: what the other has to have may be left out.
      document = {{"schema", "ckptree.rows/1"}, {"of", table.schema}};
      Json names = Json::array();
      for (std::size_t c : shown) names.push_back(table.columns[c].name);
      document["columns"] = std::move(names);
    }
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
      return ForPeople(table, shown, options, terminal);
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
