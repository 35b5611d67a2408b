// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/small_tables.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kv/journal/overlay.h"
#include "rocksdb/db.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/sst_partitioner.h"
#include "rocksdb/table_properties.h"

namespace ckptree::kv {
namespace {

constexpr char kFirst[] = "ckptree.deleted.first";
constexpr char kLast[] = "ckptree.deleted.last";

class DeletionsNoted : public rocksdb::TablePropertiesCollector {
 public:
  const char* Name() const override { return "ckptree.deleted"; }

  rocksdb::Status AddUserKey(const rocksdb::Slice& key, const rocksdb::Slice&,
                             rocksdb::EntryType type, rocksdb::SequenceNumber,
                             std::uint64_t) override {
    if (type == rocksdb::kEntryPut) return rocksdb::Status::OK();
    // Keys ascend.
    if (!rows_.has_value()) rows_.emplace().first = key.ToString();
    rows_->last.assign(key.data(), key.size());
    return rocksdb::Status::OK();
  }

  rocksdb::Status Finish(
      rocksdb::UserCollectedProperties* properties) override {
    *properties = GetReadableProperties();
    return rocksdb::Status::OK();
  }

  rocksdb::UserCollectedProperties GetReadableProperties() const override {
    if (!rows_.has_value()) return {};
    return {{kFirst, rows_->first}, {kLast, rows_->last}};
  }

 private:
  std::optional<DeletedRows> rows_;
};

class DeletionsNotedFactory : public rocksdb::TablePropertiesCollectorFactory {
 public:
  const char* Name() const override { return "ckptree.deleted"; }

  rocksdb::TablePropertiesCollector* CreateTablePropertiesCollector(
      Context) override {
    return new DeletionsNoted;
  }
};

// kv's own keys, of which there is one, follow all rows.
bool IsRow(const rocksdb::Slice& key) {
  return key.ToStringView() < kEndOfRows;
}

class MarkerAlone : public rocksdb::SstPartitioner {
 public:
  const char* Name() const override { return "ckptree.marker"; }

  rocksdb::PartitionerResult ShouldPartition(
      const rocksdb::PartitionerRequest& request) override {
    return IsRow(*request.prev_user_key) && !IsRow(*request.current_user_key)
               ? rocksdb::kRequired
               : rocksdb::kNotRequired;
  }

  bool CanDoTrivialMove(const rocksdb::Slice& smallest,
                        const rocksdb::Slice& largest) override {
    return IsRow(smallest) == IsRow(largest);
  }
};

class MarkerAloneFactory : public rocksdb::SstPartitionerFactory {
 public:
  const char* Name() const override { return "ckptree.marker"; }

  std::unique_ptr<rocksdb::SstPartitioner> CreatePartitioner(
      const rocksdb::SstPartitioner::Context&) const override {
    return std::make_unique<MarkerAlone>();
  }
};

// Of a table that was written before its deletions were noted: all of it.
std::optional<DeletedRows> RowsOf(rocksdb::DB* db,
                                  rocksdb::ColumnFamilyHandle* family,
                                  const std::string& table) {
  rocksdb::ColumnFamilyMetaData files;
  db->GetColumnFamilyMetaData(family, &files);
  for (const rocksdb::LevelMetaData& level : files.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files) {
      if (!table.ends_with(file.relative_filename)) continue;
      return DeletedRows{file.smallestkey, file.largestkey};
    }
  }
  return std::nullopt;  // It has gone since.
}

}  // namespace

std::shared_ptr<rocksdb::TablePropertiesCollectorFactory> NoteDeletions() {
  return std::make_shared<DeletionsNotedFactory>();
}

std::shared_ptr<rocksdb::SstPartitionerFactory> CutBeforeMarker() {
  return std::make_shared<MarkerAloneFactory>();
}

bool HasDeletionsInMemory(rocksdb::DB* db,
                          rocksdb::ColumnFamilyHandle* family) {
  for (const std::string& property :
       {rocksdb::DB::Properties::kNumDeletesActiveMemTable,
        rocksdb::DB::Properties::kNumDeletesImmMemTables}) {
    std::uint64_t count = 0;
    if (!db->GetIntProperty(family, property, &count) || count > 0) return true;
  }
  return false;
}

std::optional<DeletedRows> FindDeletedRows(
    rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
  // The list of files does not have the count of each.
  rocksdb::TablePropertiesCollection tables;
  if (!db->GetPropertiesOfAllTables(family, &tables).ok()) {
    return DeletedRows{"", std::string(kEndOfRows)};
  }
  std::optional<DeletedRows> all;
  for (const auto& [name, table] : tables) {
    if (table->num_deletions + table->num_range_deletions == 0) continue;
    const auto& noted = table->user_collected_properties;
    const auto first = noted.find(kFirst);
    const auto last = noted.find(kLast);
    const std::optional<DeletedRows> rows =
        first == noted.end() || last == noted.end()
            ? RowsOf(db, family, name)
            : DeletedRows{first->second, last->second};
    if (!rows.has_value()) continue;
    if (!all.has_value()) all = rows;
    all->first = std::min(all->first, rows->first);
    all->last = std::max(all->last, rows->last);
  }
  return all;
}

}  // namespace ckptree::kv
