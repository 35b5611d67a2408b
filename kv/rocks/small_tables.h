// SPDX-License-Identifier: Apache-2.0

// Which tables of `small` a compaction has to write anew. All rows of a step
// stand together, and steps are deleted from the beginning of a run mostly: its
// newer tables have nothing to give back.

#ifndef CKPTREE_KV_ROCKS_SMALL_TABLES_H_
#define CKPTREE_KV_ROCKS_SMALL_TABLES_H_

#include <memory>
#include <optional>
#include <string>

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class SstPartitionerFactory;
class TablePropertiesCollectorFactory;
}  // namespace rocksdb

namespace ckptree::kv {

// Each table notes in its properties which rows were deleted in it: from the
// first to the last.
std::shared_ptr<rocksdb::TablePropertiesCollectorFactory> NoteDeletions();

// The marker is the last row of all, and each batch writes it. It has a table
// of its own behind level 0: with the newest rows, or with the oldest ones that
// were deleted, it would make a table that reaches over all others.
std::shared_ptr<rocksdb::SstPartitionerFactory> CutBeforeMarker();

// Keys, both included.
struct DeletedRows {
  std::string first;
  std::string last;
};

// Whether rows were deleted that no table says yet; true also where that cannot
// be told.
bool HasDeletionsInMemory(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family);

// From the first to the last row that was deleted and whose bytes may still
// stand in tables; nothing where there are none. All rows where the tables
// cannot be asked.
std::optional<DeletedRows> FindDeletedRows(rocksdb::DB* db,
                                           rocksdb::ColumnFamilyHandle* family);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SMALL_TABLES_H_
