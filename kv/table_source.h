// The tables of a database directory, each looked at on its own.

#ifndef CKPTREE_KV_TABLE_SOURCE_H_
#define CKPTREE_KV_TABLE_SOURCE_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/scan_around.h"
#include "schema/spaces.h"

namespace rocksdb {
class DB;
class Env;
}  // namespace rocksdb

namespace ckptree::kv {

struct TableSource {
  std::string path;
  // Nothing for a table that belongs to none of the spaces.
  std::optional<schema::Space> space;
};

// Opens the table at `path` and says what it holds; `space_of` is asked about
// the first value of a file that a SegmentWriter made. An error: it cannot be
// read at all.
absl::StatusOr<TableSource> LookAtTable(
    const std::string& path, rocksdb::Env* env,
    absl::FunctionRef<std::optional<schema::Space>(std::string_view value)>
        space_of);

// Calls `entry` for what can be read of a table, in order, without deletions.
absl::StatusOr<ScanGaps> ScanTable(
    const TableSource& table, rocksdb::Env* env,
    absl::FunctionRef<absl::Status(std::string_view key,
                                   std::string_view value)>
        entry);

// Writes what can be read of a segment to a new file at `path`, which can be
// adopted. No file is made where there is nothing.
absl::StatusOr<ScanGaps> RewriteTable(const TableSource& table,
                                      rocksdb::Env* from_env,
                                      const std::string& path,
                                      rocksdb::Env* to_env);

// A second name for the file, or a copy where that cannot be.
absl::Status LinkOrCopy(const Options& options, const std::string& from,
                        const std::string& to);
absl::Status CopyFile(const Options& options, const std::string& from,
                      const std::string& to);

// The names of the files that an open database knows as its tables.
std::set<std::string, std::less<>> LiveTableNames(rocksdb::DB* database);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TABLE_SOURCE_H_
