// SPDX-License-Identifier: Apache-2.0

// A table as text, for people or for programs.

#ifndef CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

// How rows were set, so that those that come later stand below them.
struct Layout {
  std::vector<std::string> columns = {};  // That were to be shown: their names.
  // For people.
  std::vector<std::size_t> shown = {};  // Of these, those that had room.
  std::vector<int> widths = {};         // Of `shown`.
  bool fits = false;                    // What is longer is shortened.
  std::string note = {};  // Says at the end which columns had no room.
};

// Which of the rows of a table a text is of: `first` has what stands before all
// of them, `last` what stands behind them.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool first = true;
  bool last = true;
};

// `table` as text that ends a line. kInvalidArgument: a column that is not
// there, with the nearest. With `layout` of rows that had the same columns: as
// rows of that table, without a header.
absl::StatusOr<std::string> Render(Table table, const TableOptions& options,
                                   const Terminal& terminal,
                                   Layout* layout = nullptr);

// A text as a cell of CSV, or of TSV, has it.
std::string SeparatedText(std::string_view text, bool csv, bool terminal);

// kInvalidArgument where `options` name a column that `table` does not have,
// whose rows are not looked at. For what is known before rows are.
absl::Status CheckColumns(Table table, const TableOptions& options);

// One piece of that text: those of all pieces, one behind the other, are the
// text of the table, but that widths are those of the first piece and grow from
// the piece on that has a wider cell. `options` ask for no order and have no
// condition; their limit is not looked at. `layout` is the same for all.
absl::StatusOr<std::string> RenderPiece(const Table& table, const Piece& piece,
                                        const TableOptions& options,
                                        const Terminal& terminal,
                                        Layout* layout);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PRINTED_TABLE_H_
