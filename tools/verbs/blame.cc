// SPDX-License-Identifier: Apache-2.0

// `ckptree blame`: which save gave each leaf its value.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/history.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
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
  const absl::StatusOr<std::vector<std::string>> names =
      NamesIn({&*step}, address->key);
  if (!names.ok()) return names.status();
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<BlameEntry>> entries = Blame(**store, *step);
  if (!entries.ok()) return entries.status();

  Table table;
  table.schema = "ckptree.blame/1";
  table.rows_name = "leaves";
  table.extra = {{"step", step->step()}, {"branch", step->info().branch}};
  table.columns = {{.name = "since", .title = "SINCE", .right = true},
                   {.name = "listed", .title = "LISTED"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE"},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "version"}};
  for (const BlameEntry& entry : *entries) {
    if (!std::binary_search(names->begin(), names->end(), entry.leaf.name)) {
      continue;
    }
    Cell listed;
    listed.value = entry.listed;
    listed.text = entry.listed ? "yes" : "no";
    table.rows.push_back({StepCell(entry.detail.since_step), std::move(listed),
                          TextCell(entry.leaf.name), TypeCell(entry.leaf),
                          BytesCell(entry.detail.bytes, options->exact_bytes),
                          CountCell(entry.detail.since_version)});
  }
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace ckptree::tools
