// SPDX-License-Identifier: Apache-2.0

#include "tools/output/printed_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/quantity.h"
#include "tools/output/row_threads.h"
#include "tools/output/shown_rows.h"

namespace ckptree::tools {
namespace {

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

// What CSV and TSV show of a value; of control characters `keep` stay.
std::string PlainText(const Json& value, std::string_view keep) {
  switch (value.type()) {
    case Json::value_t::null:
      return "";
    case Json::value_t::string:
      return EscapeBut(value.get_ref<const std::string&>(), keep);
    case Json::value_t::number_float:
      return NumberText(value.get<double>());
    case Json::value_t::array: {
      std::string text;
      for (const Json& member : value) {
        if (!text.empty()) text += ' ';
        text += PlainText(member, keep);
      }
      return text;
    }
    default:
      return JsonText(value, false);
  }
}

std::string Quoted(const std::string& text, char separator) {
  if (separator == '\t') return text;  // Escaped: holds none.
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// What of control characters a format keeps as it is.
std::string_view KeptIn(bool csv, bool terminal) {
  if (!csv) return "";
  // Quoted, as RFC 4180 has it. A terminal obeys CR, whatever is around it.
  return terminal ? "\n\t" : "\n\t\r";
}

std::string Separated(const Table& table, const ShownRows& rows,
                      const std::vector<std::size_t>& shown, bool header,
                      char separator, std::string_view keep) {
  std::string out;
  const auto line = [&](auto&& cell_text) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (i > 0) out += separator;
      out += Quoted(cell_text(shown[i]), separator);
    }
    out += '\n';
  };
  if (header) {
    line([&](std::size_t c) { return EscapeBut(table.columns[c].name, keep); });
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<Cell>& row = rows[r];
    line([&](std::size_t c) { return PlainText(row[c].value, keep); });
  }
  return out;
}

std::string Markdown(const Table& table, const ShownRows& rows,
                     const std::vector<std::size_t>& shown, bool header) {
  const auto safe = [](std::string text) {
    std::string out;
    for (char c : text) {
      if (c == '|' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  };
  std::string out;
  if (header) {
    out += '|';
    for (std::size_t c : shown) {
      out += ' ';
      out += safe(Escape(table.columns[c].name));
      out += " |";
    }
    out += "\n|";
    for (std::size_t c : shown) {
      out += table.columns[c].right ? " ---: |" : " --- |";
    }
    out += '\n';
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<Cell>& row = rows[r];
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

// Each row under the other, as JSON text that has all of them; `first`: no row
// stands before them.
std::string JsonRows(const Table& table, const ShownRows& rows,
                     const std::vector<std::size_t>& shown, bool lines,
                     bool first) {
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<Cell>& row = rows[r];
    Json object = Json::object();
    for (std::size_t c : shown) object[table.columns[c].name] = row[c].value;
    const std::string text = JsonText(std::move(object), !lines);
    if (lines) {
      out += text;
      out += '\n';
      continue;
    }
    out += first && r == 0 ? "\n    " : ",\n    ";
    // Strings have no line ends: all are between members.
    for (const char c : text) {
      out += c;
      if (c == '\n') out += "    ";
    }
  }
  return out;
}

// `members` as they stand behind others in a document.
std::string MembersBehind(Json members) {
  if (members.empty()) return "";
  std::string text = JsonText(std::move(members), true);
  constexpr std::string_view kBegin = "{", kEnd = "\n}";
  text.resize(text.size() - kEnd.size());
  return "," + text.substr(kBegin.size());
}

// Texts of a range of the rows that are shown, of some of their columns.
class Texts {
 public:
  Texts(const ShownRows& rows, RowRange range,
        const std::vector<std::size_t>& columns)
      : columns_(columns.size()), rows_(range.end - range.begin) {
    cells_.reserve(rows_ * columns_ + 1);
    std::vector<Cell> made;
    for (std::size_t r = range.begin; r < range.end; ++r) {
      const std::vector<Cell>& row = rows.Get(r, &made);
      for (const std::size_t c : columns) {
        const Cell& cell = row[c];
        cells_.push_back({bytes_.size(), DisplayWidth(cell.text), cell.tone});
        bytes_ += cell.text;
      }
    }
    cells_.push_back({bytes_.size(), 0, Tone::kPlain});
  }

  std::size_t rows() const { return rows_; }

  struct One {
    std::string_view text;
    int width;
    Tone tone;
  };
  // `row` is one of the range, `column` the place of one of `columns`.
  One Of(std::size_t row, std::size_t column) const {
    const Place* const place = &cells_[row * columns_ + column];
    return {std::string_view(bytes_).substr(place[0].begin,
                                            place[1].begin - place[0].begin),
            place->width, place->tone};
  }

 private:
  struct Place {
    std::size_t begin;  // It ends where the next one begins.
    int width;
    Tone tone;
  };
  std::size_t columns_;
  std::size_t rows_;
  std::string bytes_;
  std::vector<Place> cells_;
};

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

// The columns and widths of `layout`, of which those grow that must: what may
// be shortened to fit a terminal is.
void SetBelow(const Table& table, const Layout& layout, bool fits,
              std::vector<std::size_t>* shown, std::vector<int>* widths) {
  std::vector<std::size_t> kept;
  std::vector<int> wide;
  for (std::size_t i = 0; i < layout.shown.size(); ++i) {
    const std::size_t place = layout.shown[i];
    kept.push_back((*shown)[place]);
    wide.push_back(fits && table.columns[kept.back()].elide
                       ? layout.widths[i]
                       : std::max(layout.widths[i], (*widths)[place]));
  }
  *shown = std::move(kept);
  *widths = std::move(wide);
}

std::string ForPeople(const Table& table, const ShownRows& rows,
                      const std::vector<std::size_t>& columns,
                      const TableOptions& options, const Terminal& terminal,
                      bool below, bool last, Layout* layout) {
  const bool header = options.header && !below;
  const auto title = [&](std::size_t c) {
    const Column& column = table.columns[c];
    // Of drawings.
    if (column.title == " ") return std::string();
    return column.title.empty() ? Escape(column.name) : column.title;
  };
  // Where nobody's screen is the measure one long cell does not push all the
  // others away.
  constexpr int kWidestPadding = 72;
  const std::vector<RowRange> ranges = RangesOfRows(rows.size());
  std::vector<std::optional<Texts>> texts(ranges.size());
  OnRowThreads(ranges.size(), [&](std::size_t t) {
    texts[t].emplace(rows, ranges[t], columns);
  });
  const auto widths_of = [&](bool fits) {
    std::vector<int> widths;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      int width = header ? DisplayWidth(title(columns[i])) : 0;
      const bool all = fits || table.columns[columns[i]].right;
      for (const std::optional<Texts>& of_range : texts) {
        for (std::size_t r = 0; r < of_range->rows(); ++r) {
          const int own = of_range->Of(r, i).width;
          if (all || own <= kWidestPadding) width = std::max(width, own);
        }
      }
      widths.push_back(width);
    }
    return widths;
  };
  bool fits = below ? layout->fits : terminal.is_terminal && !options.full;
  std::vector<int> widths = widths_of(fits);
  std::vector<std::size_t> shown = columns;
  std::vector<std::size_t> gone;
  if (below) {
    SetBelow(table, *layout, fits, &shown, &widths);
  } else if (fits && !shown.empty()) {
    // Of columns that were asked for none goes.
    gone = Fit(table, terminal.width, &shown, &widths);
    if (!options.columns.empty() && !gone.empty()) {
      fits = false;
      shown = columns;
      gone.clear();
      widths = widths_of(false);
    }
  }
  std::vector<std::size_t> places;  // Of `shown` among `columns`.
  for (const std::size_t c : shown) {
    places.push_back(static_cast<std::size_t>(
        std::find(columns.begin(), columns.end(), c) - columns.begin()));
  }
  if (layout != nullptr) {
    layout->shown = places;
    layout->widths = widths;
    layout->fits = fits;
  }
  const auto line = [&](std::string& out, auto&& cell) {
    std::size_t pending = 0;  // Spaces: written only where more follows.
    for (std::size_t i = 0; i < shown.size(); ++i) {
      auto [text, width, tone] = cell(i);
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
        if (terminal.color && tone != Tone::kPlain) {
          out += Paint(text, tone, true);
        } else {
          out += text;
        }
        pending = 0;
      }
      if (!right) pending += pad;
      pending += 2;
    }
    out += '\n';
  };
  std::string out;
  if (header) {
    std::vector<std::string> titles;
    for (const std::size_t c : shown) titles.push_back(title(c));
    line(out, [&](std::size_t i) {
      return Texts::One{titles[i], DisplayWidth(titles[i]), Tone::kHeading};
    });
  }
  std::vector<std::string> lines(ranges.size());
  OnRowThreads(ranges.size(), [&](std::size_t t) {
    const Texts& of_range = *texts[t];
    for (std::size_t r = 0; r < of_range.rows(); ++r) {
      line(lines[t], [&](std::size_t i) { return of_range.Of(r, places[i]); });
    }
    texts[t].reset();
  });
  for (const std::string& of_range : lines) out += of_range;
  std::string note;
  if (!gone.empty()) {
    std::vector<std::string> names;
    for (const std::size_t c : gone) {
      names.push_back(Escape(table.columns[c].name));
    }
    note = Paint(ElideMiddle(
                     "(--full also shows " + absl::StrJoin(names, ", ") + ")",
                     terminal.width, terminal.utf8),
                 Tone::kFaint, terminal.color) +
           '\n';
  }
  if (!last) {
    if (!below) layout->note = std::move(note);
    return out;
  }
  if (layout != nullptr) out += std::exchange(layout->note, "");
  return out + note;
}

// The text of `rows`, as `piece` says; its range is not looked at.
absl::StatusOr<std::string> RenderRows(
    const Table& table, const ShownRows& rows, const Piece& piece,
    const TableOptions& options, const Terminal& terminal, Layout* layout) {
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

  bool below = false;
  if (layout != nullptr) {
    std::vector<std::string> names;
    for (const std::size_t c : shown) names.push_back(table.columns[c].name);
    below = names == layout->columns;
    layout->columns = std::move(names);
  }
  const bool header = options.header && !below;
  if (json) {
    const bool lines = options.format == Format::kNdjson;
    std::string of_rows = JsonRows(table, rows, shown, lines, piece.first);
    if (lines) return of_rows;
    std::string end = rows.size() > 0 || !piece.first ? "\n  ]" : "]";
    if (piece.last && table.ending != nullptr) {
      absl::StatusOr<Json> ending = table.ending();
      if (!ending.ok()) return ending.status();
      end += MembersBehind(*std::move(ending));
    }
    end += "\n}\n";
    if (piece.last) of_rows += end;
    if (!piece.first) return of_rows;
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
    document[table.rows_name] = Json::array();
    std::string text = JsonText(std::move(document), true);
    constexpr std::string_view kEnd = "]\n}";  // Of no rows.
    text.resize(text.size() - kEnd.size());
    return text + of_rows;
  }
  switch (options.format) {
    case Format::kCsv:
      return Separated(table, rows, shown, header, ',',
                       KeptIn(/*csv=*/true, terminal.is_terminal));
    case Format::kTsv:
      return Separated(table, rows, shown, header, '\t',
                       KeptIn(/*csv=*/false, terminal.is_terminal));
    case Format::kMarkdown:
      return Markdown(table, rows, shown, header && piece.first);
    default:
      return ForPeople(table, rows, shown, options, terminal, below, piece.last,
                       layout);
  }
}
}  // namespace

std::string SeparatedText(std::string_view text, bool csv, bool terminal) {
  return Quoted(EscapeBut(text, KeptIn(csv, terminal)), csv ? ',' : '\t');
}

absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal, Layout* layout) {
  if (!options.sort.empty()) {
    table.MakeRows();
    // What is wrong with a condition is said first.
    if (options.where) {
      const absl::StatusOr<ShownRows> chosen = ChooseRows(table, options);
      if (!chosen.ok()) return chosen.status();
    }
    const absl::StatusOr<std::size_t> column = FindColumn(table, options.sort);
    if (!column.ok()) return column.status();
    std::stable_sort(table.rows.begin(), table.rows.end(),
                     [&](const auto& a, const auto& b) {
                       return Before(a[*column].value, b[*column].value,
                                     options.descending);
                     });
  }
  const absl::StatusOr<ShownRows> rows = ChooseRows(table, options);
  if (!rows.ok()) return rows.status();
  return RenderRows(table, *rows, Piece(), options, terminal, layout);
}

absl::Status CheckColumns(Table table, const TableOptions& options) {
  return Render(std::move(table), options, Terminal()).status();
}

absl::StatusOr<std::string> RenderPiece(const Table& table, const Piece& piece,
                                        const TableOptions& options,
                                        const Terminal& terminal,
                                        Layout* layout) {
  ShownRows rows(table);
  for (std::size_t r = piece.begin; r < piece.end; ++r) rows.Add(r);
  return RenderRows(table, rows, piece, options, terminal, layout);
}

}  // namespace ckptree::tools
