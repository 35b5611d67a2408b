// SPDX-License-Identifier: Apache-2.0

// Rows of facts, printed for people or for programs.

#ifndef CKPTREE_TOOLS_OUTPUT_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_TABLE_H_

#include <cstdint>
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
  bool drawn = false;  // True: for people alone, in tables and Markdown.
  bool asked =
      false;  // A flag asked for it: it goes last where all do not fit.
};

struct Table {
  std::string schema;  // "ckptree.log/1"
  std::string rows_name;
  Json extra = Json::object();  // Beside the rows in JSON.
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // As many cells as columns.
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
};

// `table` as text that ends a line. kInvalidArgument: a column that is not
// there, with the nearest.
absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal);

// JSON text of `value`: NaN and infinities as strings, no control characters.
std::string JsonText(const Json& value, bool pretty);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_TABLE_H_
