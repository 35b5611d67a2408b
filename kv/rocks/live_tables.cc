// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/live_tables.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/metadata.h"

namespace ckptree::kv {

LiveTables::Tables LiveTables::Find(const Instance& instance,
                                    schema::Space space, std::string_view key) {
  if (listed_of_ != instance.serial()) List(instance);
  const OfSpace& of = spaces_[static_cast<std::size_t>(space)];
  const auto after =
      std::upper_bound(of.tables.begin(), of.tables.end(), key,
                       [](std::string_view k, const Table& table) {
                         return k < table.first_key;
                       });
  Tables found;
  for (auto i = static_cast<std::size_t>(after - of.tables.begin());
       i-- > 0 && of.reach[i] >= key;) {
    if (of.tables[i].last_key >= key) found.push_back(&of.tables[i]);
  }
  return found;
}

void LiveTables::List(const Instance& instance) {
  for (OfSpace& of : spaces_) of = OfSpace();
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  for (const rocksdb::LiveFileMetaData& file : files) {
    for (const schema::Space space :
         {schema::Space::kSmall, schema::Space::kLeaves,
          schema::Space::kChunks}) {
      if (file.column_family_name != schema::NameOf(space)) continue;
      spaces_[static_cast<std::size_t>(space)].tables.push_back(
          {file.smallestkey, file.largestkey,
           file.directory + "/" + file.relative_filename, file.size});
    }
  }
  for (OfSpace& of : spaces_) {
    std::sort(of.tables.begin(), of.tables.end(),
              [](const Table& a, const Table& b) {
                return a.first_key < b.first_key;
              });
    for (const Table& table : of.tables) {
      of.reach.push_back(of.reach.empty()
                             ? table.last_key
                             : std::max(of.reach.back(), table.last_key));
    }
  }
  listed_of_ = instance.serial();
}

}  // namespace ckptree::kv
