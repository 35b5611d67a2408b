// SPDX-License-Identifier: Apache-2.0

#include "tools/output/written_table.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace ckptree::tools {

absl::Status WriteTable(Table table, const TableOptions& options,
                        const Terminal& terminal, Layout* layout,
                        ByteSink* out) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const bool of_all =
      !options.sort.empty() || options.reverse || options.where.has_value();
  const std::size_t most = of_all || !options.limit
                               ? kAll
                               : static_cast<std::size_t>(*options.limit);
  bool more = table.more_rows != nullptr;
  const auto rows = [&] { return table.rows.size() + table.late_rows; };
  std::size_t written = 0;  // Of the late rows.
  const auto read = [&](std::size_t least) -> absl::Status {
    while (more && rows() < least) {
      CKPTREE_ASSIGN_OR_RETURN(more,
                               table.more_rows(written, &table.late_rows));
    }
    return absl::OkStatus();
  };
  // Programs wait for no widths, and pagers are for terminals.
  const bool for_people =
      options.format == Format::kTable || terminal.is_terminal;
  const std::size_t least = for_people ? kRowsOfWhole + 1 : 1;
  CKPTREE_RETURN_IF_ERROR(read(of_all ? kAll : std::min(most, least)));
  if (!more || rows() >= most) {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::string text,
        Render(std::move(table), options, terminal, layout));
    out->Write(text);
    return absl::OkStatus();
  }
  Layout own;
  if (layout == nullptr) layout = &own;
  Piece piece = {.last = false};
  for (;;) {
    piece.end = std::min(most, rows());
    piece.last = !more || rows() >= most;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::string text,
        RenderPiece(table, piece, options, terminal, layout));
    out->Write(text);
    if (piece.last) return absl::OkStatus();
    out->Flush().IgnoreError();  // It is kept, and told at the end.
    if (out->failed()) return absl::OkStatus();
    piece.begin = piece.end;
    written = table.late_rows;
    piece.first = false;
    CKPTREE_RETURN_IF_ERROR(read(rows() + 1));
  }
}

}  // namespace ckptree::tools
