// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/spare_tables.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/spare_segments.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// Up to 256 MiB of disk each, as long as they are open.
constexpr std::size_t kTablesOpen = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<FetchedTable>> SpareTables::TableOf(
    std::string_view key) {
  const absl::MutexLock lock(&mutex_);
  for (const Opened& opened : tables_) {
    if (opened.first_key <= key && key <= opened.last_key) return opened.table;
  }
  CKPTREE_ASSIGN_OR_RETURN(SpareSegments::Copy copy,
                           options_.spare->Fetch(key));
  auto table = std::make_shared<FetchedTable>(options_, schema::Space::kChunks);
  const absl::Status status = table->Open(copy.path);
  RemoveFile(options_, copy.path).IgnoreError();
  CKPTREE_RETURN_IF_ERROR(status);
  if (tables_.size() == kTablesOpen) tables_.pop_front();
  tables_.push_back(
      {std::move(copy.first_key), std::move(copy.last_key), table});
  return table;
}

absl::StatusOr<std::string> SpareTables::Get(std::string_view key) {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<FetchedTable> table,
                           TableOf(key));
  return table->Get(key, "a segment that was fetched");
}

}  // namespace ckptree::kv
