// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/row_tables.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/process_use.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/logger.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/segment_table.h"
#include "kv/rocks/table_source.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

// A MANIFEST that names all tables of `folder`, and every family.
absl::Status MakeManifest(const Options& options, const std::string& folder) {
  const ForkHold hold;
  // Which refuses tables that would end the process.
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(
      FileSystemOf(Guarded(options, Guard::kWriter, nullptr)));
  rocksdb::DBOptions making = DatabaseOptions(Role::kCreate, env.get());
  making.error_if_exists = false;
  making.info_log = MakeLogger(options.log);
  const std::vector<rocksdb::ColumnFamilyDescriptor> families =
      Families(/*cache=*/nullptr, /*repaired=*/true);
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(rocksdb::RepairDB(folder, making, families),
               "putting the tables of rows together in " + folder));
  // It makes no family without a table.
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* database = nullptr;
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(rocksdb::DB::Open(making, folder, families, &handles, &database),
               "opening " + folder));
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    database->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  const absl::Status closed = ToStatus(database->Close(), "closing " + folder);
  delete database;
  return closed;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Instance>> OpenRowTables(
    const Options& options, const std::string& db_directory,
    const std::string& folder, SegmentSpaceFn space_of) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, db_directory));
  CKPTREE_RETURN_IF_ERROR(MakeDirectory(options, folder));
  bool any = false;
  for (const std::string& name : names) {
    if (!name.ends_with(".sst")) continue;
    const std::string path = Join(db_directory, name);
    const absl::StatusOr<SegmentTable> table =
        SegmentTable::Open(options, path, space_of);
    if (!table.ok() || (table->space() != Space::kRecords &&
                        table->space() != Space::kSmall)) {
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(LinkOrCopy(options, path, Join(folder, name)));
    any = true;
  }
  if (!any) {
    return absl::NotFoundError(
        absl::StrFormat("there is no table of rows in %s", db_directory));
  }
  CKPTREE_RETURN_IF_ERROR(MakeManifest(options, folder));
  return Instance::Open(Role::kForensic, folder,
                        Guarded(options, Guard::kReader, nullptr), nullptr,
                        nullptr);
}

}  // namespace ckptree::kv
