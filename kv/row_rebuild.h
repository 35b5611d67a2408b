// The rows of a database whose MANIFEST is lost, from its tables and logs.

#ifndef CKPTREE_KV_ROW_REBUILD_H_
#define CKPTREE_KV_ROW_REBUILD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/instance.h"
#include "kv/options.h"
#include "kv/table_source.h"

namespace ckptree::kv {

struct RebuiltRows {
  // Open for reading. Only its iterators may be asked: a lookup may find an
  // older row first.
  std::shared_ptr<Instance> instance;
  // Damaged tables that are not in it, the newest first.
  std::vector<TableSource> left_out;
  std::vector<std::string> notes;
};

// Makes a database in `scratch`, which must not exist, of the row tables
// `tables` and all logs of `db_directory`, by RocksDB's repair. A key that
// IsRebuildMark is none of the rows.
absl::StatusOr<RebuiltRows> RebuildRows(const std::string& db_directory,
                                        const std::vector<TableSource>& tables,
                                        const std::string& scratch,
                                        const Options& options);

bool IsRebuildMark(std::string_view key);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROW_REBUILD_H_
