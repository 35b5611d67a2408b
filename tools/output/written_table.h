// SPDX-License-Identifier: Apache-2.0

// A table to where results go, as its rows come.

#ifndef CKPTREE_TOOLS_OUTPUT_WRITTEN_TABLE_H_
#define CKPTREE_TOOLS_OUTPUT_WRITTEN_TABLE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "tools/output/byte_sink.h"
#include "tools/output/printed_table.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

// A table for people of no more rows is looked at as a whole: its widths are
// those of all of them, and nothing of it is written before all are known. Of a
// longer one the first rows are more than this, so more than fit a screen:
// whether a pager is asked is known by then. So it is on a terminal, whatever
// the format. For programs the first piece that has a row is written.
inline constexpr std::size_t kRowsOfWhole = 1024;

// Writes `table` as Render() gives it; one that has more_rows by pieces, each
// written to the end before the next is read. An order, --reverse and a
// condition need all rows first. Of what is not shown nothing is read, be it
// for a limit or as nobody reads on; that is no error here but one of `out`.
// What more_rows fails with after the first piece leaves a text that ends in
// the middle: of JSON a document that is not closed.
absl::Status WriteTable(Table table, const TableOptions& options,
                        const Terminal& terminal, Layout* layout,
                        ByteSink* out);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_WRITTEN_TABLE_H_
