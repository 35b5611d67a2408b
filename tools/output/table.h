// SPDX-License-Identifier: Apache-2.0

// Rows of facts, printed for people or for programs.

#ifndef CKPTREE_TOOLS_OUTPUT_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/output/expression.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

using Json = nlohmann::ordered_json;

// `value` is for programs, sorting and conditions, `text` for people.
struct Cell {
  Json value;
  std::string text;
  Tone tone = Tone::kPlain;
};

Cell TextCell(std::string_view text, Tone tone = Tone::kPlain);
Cell CountCell(std::uint64_t count);
Cell StepCell(std::int64_t step);
Cell BytesCell(std::uint64_t bytes, bool exact);
Cell NumberCell(double value);  // Red where it is not finite.
Cell NoCell();                  // Nothing is known.

struct Column {
  std::string name;        // In JSON, CSV and after --columns.
  std::string title = {};  // In tables; empty: not unless asked for.
  bool right = false;
  bool elide = false;  // May be shortened to fit a terminal.
  bool flat = true;    // False: only in JSON (and where asked for).
  bool json = true;    // False: not in JSON (there it stands elsewhere).
  bool time = false;   // True: its values are texts of times.
  bool drawn = false;  // True: for people alone, in tables and Markdown.
  bool asked =
      false;  // A flag asked for it: it goes last where all do not fit.
};

// The title of a column as it may be named: "max_abs" of MAX ABS.
std::string TitleAsName(const Column& column);

struct Table {
  std::string schema;  // "ckptree.log/1"
  std::string rows_name;
  Json extra = Json::object();  // Before the rows in JSON.
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // As many cells as columns.

  // Of a long table most of the time goes into the memory of its cells: these
  // rows, after those of `rows`, are made one by one when they are looked at,
  // some of them twice, all into the same memory. `cells` is to be given as
  // many as columns. Called by several threads at once.
  std::size_t late_rows = 0;
  std::function<void(std::size_t late_row, std::vector<Cell>* cells)> make_row;

  // Rows by pieces: where it is set each call adds to `late_rows` those that
  // were read by then, or none, until it says false: those were all. Of them
  // the first `written` are not looked at any more. On the thread that prints,
  // never beside make_row.
  std::function<absl::StatusOr<bool>(std::size_t written,
                                     std::size_t* late_rows)>
      more_rows;

  // Members behind the rows in JSON: what is known when all have been read. It
  // may have to read those that are not shown. Asked once, behind the last
  // make_row and more_rows; not of other formats.
  std::function<absl::StatusOr<Json>()> ending;

  // All of them are in `rows` then.
  void MakeRows();
};

enum class Format { kTable, kJson, kNdjson, kCsv, kTsv, kMarkdown };

struct TableOptions {
  Format format = Format::kTable;
  std::vector<std::string> columns;
  std::string sort;
  bool descending = false;
  bool reverse = false;
  std::optional<Expression> where;
  std::optional<std::int64_t> limit;
  bool header = true;
  bool exact_bytes = false;
  bool full = false;  // Nothing is shortened or left out to fit a terminal.

  // True where `column` is selected, sorted by or compared.
  bool Mentions(std::string_view column) const;
  // True where it is shown unless columns are selected.
  bool Shows(const Column& column) const;
  // True where its cells are looked at: those of others may be NoCell().
  bool Needs(const Column& column) const;
  std::vector<bool> NeedsOf(const std::vector<Column>& all) const;
  // True where their values are: those of others may be null.
  bool NeedsValues(const Column& column) const;
};

// Fills a row, column by column; cells that nobody looks at are not made.
class RowMaker {
 public:
  RowMaker(const std::vector<bool>& needed, std::vector<Cell>* row)
      : needed_(needed), row_(row) {}

  template <typename Make>
  void Add(const Make& make) {
    row_->push_back(needed_[row_->size()] ? Cell(make()) : NoCell());
  }

 private:
  const std::vector<bool>& needed_;
  std::vector<Cell>* const row_;
};

// JSON text of `value`: NaN and infinities as strings, no control characters.
std::string JsonText(Json value, bool pretty);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_TABLE_H_
