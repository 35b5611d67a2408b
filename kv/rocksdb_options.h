// Every RocksDB option of ours, once.

#ifndef CKPTREE_KV_ROCKSDB_OPTIONS_H_
#define CKPTREE_KV_ROCKSDB_OPTIONS_H_

#include <memory>

#include "schema/spaces.h"

namespace rocksdb {
class Cache;
class Env;
struct ColumnFamilyOptions;
struct DBOptions;
struct IngestExternalFileOptions;
struct Options;
}  // namespace rocksdb

namespace ckptree::kv {

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

rocksdb::ColumnFamilyOptions SpaceOptions(
    schema::Space space, const std::shared_ptr<rocksdb::Cache>& cache);

// The column family that RocksDB insists on; nothing is ever stored in it.
rocksdb::ColumnFamilyOptions DefaultFamilyOptions();

// Of the blocks of `records`, `small` and `leaves` together.
std::shared_ptr<rocksdb::Cache> BlockCache();

rocksdb::IngestExternalFileOptions AdoptOptions();

// For one file of `space` outside a database.
rocksdb::Options FileOptionsOf(schema::Space space, rocksdb::Env* env,
                               bool map);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKSDB_OPTIONS_H_
