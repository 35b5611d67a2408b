// SPDX-License-Identifier: Apache-2.0

// `ckptree blame`: which save gave each leaf its value.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "ckptree/history.h"
#include "core/engine/blame_pieces.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/kept_rows.h"
#include "tools/output/leaf_cells.h"

namespace ckptree::tools {

absl::StatusOr<int> RunBlame(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().empty() ? "" : session.words()[0]);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  std::optional<std::vector<std::string>> names;  // Nothing: all.
  if (!address->key.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(names, NamesIn({&*step}, address->key));
  }
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  CKPTREE_ASSIGN_OR_RETURN(const internal::BranchByVersion listed,
                           internal::ListedVersions(**store));
  SubtreePieces pieces(*step, "");
  KeptRows<BlameEntry> entries;  // That have been read.

  Table table;
  table.schema = "ckptree.blame/1";
  table.rows_name = "leaves";
  table.extra = {{"step", step->step()}, {"branch", step->info().branch}};
  table.columns = {{.name = "since", .title = "SINCE", .right = true},
                   {.name = "listed", .title = "LISTED"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE"},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "version"},
                   {.name = "since_branch"}};
  const std::vector<bool> needed = options->NeedsOf(table.columns);
  table.more_rows = [&](std::size_t written,
                        std::size_t* late_rows) -> absl::StatusOr<bool> {
    entries.Drop(written);
    CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> leaves, pieces.Next());
    if (leaves.empty()) return false;
    if (names) {
      std::erase_if(leaves, [&](const LeafInfo& leaf) {
        return !std::binary_search(names->begin(), names->end(), leaf.name);
      });
    }
    CKPTREE_ASSIGN_OR_RETURN(
        std::vector<BlameEntry> next,
        internal::BlameOf(*step, std::move(leaves), listed));
    entries.Add(std::move(next), step->info().leaf_count);
    *late_rows = entries.end();
    return true;
  };
  table.make_row = [&](std::size_t i, std::vector<Cell>* cells) {
    const BlameEntry& entry = entries[i];
    RowMaker row(needed, cells);
    row.Add([&] {
      Cell since = StepCell(entry.detail.since_step);
      since.text = StepText(entry.branch, entry.detail.since_step);
      return since;
    });
    row.Add([&] {
      return Cell{Json(entry.listed), entry.listed ? "yes" : "no"};
    });
    row.Add([&] { return TextCell(entry.leaf.name); });
    row.Add([&] { return TypeCell(entry.leaf); });
    row.Add(
        [&] { return BytesCell(entry.detail.bytes, options->exact_bytes); });
    row.Add([&] { return CountCell(entry.detail.since_version); });
    row.Add([&] { return entry.listed ? TextCell(entry.branch) : NoCell(); });
  };
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace ckptree::tools
