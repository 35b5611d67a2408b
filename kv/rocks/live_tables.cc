// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/live_tables.h"

#include <cstddef>
#include <iterator>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/metadata.h"

namespace ckptree::kv {

const LiveTables::Table* LiveTables::Find(const Instance& instance,
                                          schema::Space space,
                                          std::string_view key) {
  if (!listed_) List(instance);
  const auto& tables = by_first_key_[static_cast<std::size_t>(space)];
  const auto after = tables.upper_bound(key);
  if (after == tables.begin()) return nullptr;
  const Table& table = std::prev(after)->second;
  return key > table.last_key ? nullptr : &table;
}

void LiveTables::List(const Instance& instance) {
  for (auto& tables : by_first_key_) tables.clear();
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  for (const rocksdb::LiveFileMetaData& file : files) {
    for (const schema::Space of :
         {schema::Space::kLeaves, schema::Space::kChunks}) {
      const auto index = static_cast<std::size_t>(of);
      if (file.column_family_name != schema::kSpaceNames[index]) continue;
      by_first_key_[index][file.smallestkey] = {
          file.largestkey, file.directory + "/" + file.relative_filename,
          file.size};
    }
  }
  listed_ = true;
}

}  // namespace ckptree::kv
