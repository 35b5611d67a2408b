// What RocksDB 7.8.3's repair does (db/repair.cc), and what follows from it:
//
//   * It knows a column family only by a table of it, and drops every batch of
//     a log that names another one. So each family gets a table first, with a
//     mark in it, in a database made as Create makes one: the same numbers.
//   * It reads every table from end to end, and moves one with a single damaged
//     block to `lost`. So only row tables are given to it, and those it left
//     out are read by other means.
//   * A table that a SegmentWriter made names no family: it would be refused.
//   * All tables come to level 0 in any order. An iterator still finds the
//     newest row, by its sequence number; a lookup need not.
//   * Tables are read, renamed and unlinked, never written: links are safe.

#include "kv/row_rebuild.h"

#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/guard.h"
#include "kv/logger.h"
#include "kv/rocksdb_options.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// Behind every key of ours.
constexpr std::string_view kMark = "\xff\xff\xff\xff ckptree recover";

// Added to the numbers of the files, so that none meets one of the marks'.
constexpr std::uint64_t kNumberOffset = 1'000'000;

absl::Status MakeMarkedDatabase(const std::string& scratch,
                                const Options& options) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Instance> marked,
      Instance::Open(Role::kCreate, scratch, options, nullptr, nullptr));
  for (int i = 0; i < schema::kSpaceCount; ++i) {
    auto* const family = marked->family(static_cast<schema::Space>(i));
    rocksdb::Status status = marked->db()->Put(rocksdb::WriteOptions(), family,
                                               rocksdb::Slice(kMark), "");
    if (status.ok()) {
      status = marked->db()->Flush(rocksdb::FlushOptions(), family);
    }
    CKPTREE_RETURN_IF_ERROR(ToStatus(status, "making " + scratch));
  }
  return absl::OkStatus();
}

// "000012.log" -> 12; 0 for a name that is no number.
std::uint64_t NumberOf(std::string_view name) {
  std::uint64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

std::string NameOf(std::uint64_t number, std::string_view extension) {
  return absl::StrFormat("%06d.%s", number + kNumberOffset, extension);
}

absl::Status Repair(const std::string& scratch, const Options& options) {
  const std::unique_ptr<rocksdb::Env> env =
      rocksdb::NewCompositeEnv(FileSystemOf(options));
  rocksdb::DBOptions db_options = DatabaseOptions(Role::kReadWrite, env.get());
  db_options.info_log = MakeLogger(nullptr);
  return ToStatus(rocksdb::RepairDB(scratch, db_options,
                                    Families(nullptr, /*repaired=*/true)),
                  "rebuilding the rows");
}

}  // namespace

bool IsRebuildMark(std::string_view key) { return key == kMark; }

absl::StatusOr<RebuiltRows> RebuildRows(const std::string& db_directory,
                                        const std::vector<TableSource>& tables,
                                        const std::string& scratch,
                                        const Options& options) {
  CKPTREE_RETURN_IF_ERROR(MakeMarkedDatabase(scratch, options));
  std::map<std::string, const TableSource*> by_name;
  for (const TableSource& table : tables) {
    const std::string name = NameOf(NumberOf(BaseName(table.path)), "sst");
    by_name[name] = &table;
    CKPTREE_RETURN_IF_ERROR(
        LinkOrCopy(options, table.path, Join(scratch, name)));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, db_directory));
  int logs = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".log") || NumberOf(name) == 0) continue;
    CKPTREE_RETURN_IF_ERROR(
        CopyFile(options, Join(db_directory, name),
                 Join(scratch, NameOf(NumberOf(name), "log"))));
    ++logs;
  }
  CKPTREE_RETURN_IF_ERROR(Repair(scratch, options));

  RebuiltRows rebuilt;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> lost,
                           ListDirectory(options, Join(scratch, "lost")));
  for (auto name = lost.rbegin(); name != lost.rend(); ++name) {
    const auto table = by_name.find(*name);
    if (table != by_name.end()) rebuilt.left_out.push_back(*table->second);
  }
  CKPTREE_ASSIGN_OR_RETURN(
      rebuilt.instance,
      Instance::Open(Role::kForensic, scratch,
                     Guarded(options, Guard::kReader, nullptr), nullptr,
                     nullptr));
  rebuilt.notes.push_back(absl::StrFormat(
      "the records were put together from %d tables and %d logs", tables.size(),
      logs));
  return rebuilt;
}

}  // namespace ckptree::kv
