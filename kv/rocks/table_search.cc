// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_search.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/record_scan.h"
#include "kv/rocks/segment_layout.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"
#include "rocksdb/metadata.h"

namespace ckptree::kv {
namespace {

// Remembered at once.
constexpr std::size_t kTables = 16;

std::vector<std::string> TablesWith(const Instance& instance,
                                    schema::Space space, std::string_view key) {
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  std::vector<std::string> paths;
  for (const rocksdb::LiveFileMetaData& file : files) {
    if (file.column_family_name == schema::NameOf(space) &&
        file.smallestkey <= key && key <= file.largestkey) {
      paths.push_back(file.directory + "/" + file.relative_filename);
    }
  }
  return paths;
}

// True where the records beside it say nothing against its key.
bool IsInOrder(const std::vector<FoundRecord>& records, std::size_t i) {
  return records[i].proven ||
         ((i == 0 || records[i - 1].key < records[i].key) &&
          (i + 1 == records.size() || records[i].key < records[i + 1].key));
}

}  // namespace

struct TableSearch::Table {
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  std::vector<FoundRecord> records;
};

absl::StatusOr<std::string> TableSearch::Find(const Instance& instance,
                                              schema::Space space,
                                              std::string_view key,
                                              AcceptFn accept) {
  std::vector<std::shared_ptr<const Table>> tables;
  for (const std::string& path : TablesWith(instance, space, key)) {
    if (auto table = Open(path, space)) tables.push_back(std::move(table));
  }
  // Those of that key, then blocks of arrays whose own key nobody vouches for.
  // No digest is known of other values, only whether they are whole: they count
  // where nothing speaks against their key.
  const bool array = space == schema::Space::kChunks ||
                     (space == schema::Space::kSmall && IsArrayBlock(key));
  for (const bool of_key : {true, false}) {
    if (!of_key && !array) break;
    for (const auto& table : tables) {
      for (std::size_t i = 0; i < table->records.size(); ++i) {
        const FoundRecord& record = table->records[i];
        if (record.deleted || (record.key == key) != of_key ||
            (!of_key && record.proven) ||
            (!array && !IsInOrder(table->records, i))) {
          continue;
        }
        std::string value = ReadFound(table->file.get(), record);
        if (accept(value)) return value;
      }
    }
  }
  return absl::NotFoundError("no table has it");
}

std::shared_ptr<const TableSearch::Table> TableSearch::Open(
    const std::string& path, schema::Space space) {
  // Held while a table is read: two threads that want the same one read it
  // once.
  const absl::MutexLock lock(&mutex_);
  if (const auto found = tables_.find(path); found != tables_.end()) {
    return found->second;
  }
  const DamagedTablesWelcome welcome;
  auto table = std::make_shared<Table>();
  const absl::StatusOr<std::uint64_t> bytes = FileSize(options_, path);
  if (!bytes.ok() || !FileSystemOf(options_)
                          ->NewRandomAccessFile(path, rocksdb::FileOptions(),
                                                &table->file, nullptr)
                          .ok()) {
    return nullptr;
  }
  ScanHow how;
  how.one_record = space == schema::Space::kChunks;
  table->records = FindRecords(table->file.get(), *bytes, how);
  // One still in use outlives this.
  if (tables_.size() >= kTables) tables_.clear();
  return tables_[path] = table;
}

void TableSearch::Forget() {
  const absl::MutexLock lock(&mutex_);
  tables_.clear();
}

}  // namespace ckptree::kv
