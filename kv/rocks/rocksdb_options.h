// SPDX-License-Identifier: Apache-2.0

// Every RocksDB option of ours, once.

#ifndef CKPTREE_KV_ROCKS_ROCKSDB_OPTIONS_H_
#define CKPTREE_KV_ROCKS_ROCKSDB_OPTIONS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "schema/spaces.h"

namespace rocksdb {
class Cache;
class Env;
struct ColumnFamilyDescriptor;
struct DBOptions;
struct IngestExternalFileOptions;
struct Options;
}  // namespace rocksdb

namespace ckptree::kv {

// Of an index; where adoption puts every file.
inline constexpr int kBottomLevel = 6;

// How an instance of RocksDB is opened.
enum class Role {
  kCreate,     // A new one.
  kReadWrite,  // The one writer.
  kReadOnly,   // No writer lives.
  kForensic,   // As kReadOnly, tolerating damage.
  kFollower,   // Beside a live writer.
};

// The log is the caller's to set.
rocksdb::DBOptions DatabaseOptions(Role role, rocksdb::Env* env);

// The column family of the second copy of `leaves`: see leaf_copies.h.
inline constexpr std::string_view kLeafCopiesName = "leaves_copy";

// All column families: `default`, which RocksDB insists on and which stays
// empty, then one for each space, in order, then kLeafCopiesName. `cache` may
// be null. `repaired`: of a database whose MANIFEST was made anew, with all
// tables in level 0 in any order.
std::vector<rocksdb::ColumnFamilyDescriptor> Families(
    const std::shared_ptr<rocksdb::Cache>& cache, bool repaired);

// Of the blocks of `records`, `small` and `leaves` together.
std::shared_ptr<rocksdb::Cache> BlockCache();

rocksdb::IngestExternalFileOptions AdoptOptions();

// For one file of `space` outside a database.
rocksdb::Options FileOptionsOf(schema::Space space, rocksdb::Env* env,
                               bool map);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_ROCKSDB_OPTIONS_H_
