// SPDX-License-Identifier: Apache-2.0

// One open RocksDB with everything it stands on.

#ifndef CKPTREE_KV_ROCKS_INSTANCE_H_
#define CKPTREE_KV_ROCKS_INSTANCE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/process_mark.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/watcher.h"
#include "kv/store_lock.h"
#include "schema/spaces.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Env;
class Status;
struct ColumnFamilyDescriptor;
struct DBOptions;
struct RangePtr;
}  // namespace rocksdb

namespace ckptree::kv {

class CaughtDb;
class DbLock;

// Shared by the database, its iterators and its values: it closes with the last
// of them, and gives the lock back after that.
//
// Thread-safe.
class Instance {
 public:
  // `db_directory` is <store>/db. `options` has its guard already. `watcher`
  // and `lock` may be null for a reader.
  static absl::StatusOr<std::shared_ptr<Instance>> Open(
      Role role, const std::string& db_directory, const Options& options,
      std::shared_ptr<Watcher> watcher, std::shared_ptr<StoreLock> lock);

  // In a forked child everything is left as it is.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  rocksdb::DB* db() const { return db_; }
  rocksdb::Env* env() const { return env_.get(); }
  // For what reads files and must not keep the instance open.
  std::shared_ptr<rocksdb::Env> shared_env() const { return env_; }
  // Of a database that is written to; the ends are not included.
  rocksdb::Status DeleteFilesInRanges(rocksdb::ColumnFamilyHandle* family,
                                      const rocksdb::RangePtr* ranges,
                                      std::size_t count) const;
  rocksdb::ColumnFamilyHandle* family(schema::Space space) const {
    return families_[static_cast<std::size_t>(space)];
  }
  // The second copy of `leaves`; null where the database was made without it
  // and is only read.
  rocksdb::ColumnFamilyHandle* leaf_copies() const { return leaf_copies_; }
  // Once: a read of one copy met `why`, and the other one had it.
  void TellOfSecondCopy(const absl::Status& why) const;
  const std::string& directory() const { return directory_; }
  // From 1 on; no other one of this process has it.
  std::uint64_t serial() const { return serial_; }
  Role role() const { return role_; }

  absl::StatusOr<std::optional<std::string>> Get(schema::Space space,
                                                 std::string_view key) const;

  // Stops background work and reports what closing met. Not where memory ran
  // out in a write.
  absl::Status Shutdown();

 private:
  Instance(Role role, std::string directory, const Options& options,
           std::shared_ptr<StoreLock> lock);
  rocksdb::Status OpenDb(
      std::shared_ptr<Watcher> watcher, const rocksdb::DBOptions& options,
      const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
      std::vector<rocksdb::ColumnFamilyHandle*>* handles);
  // Instead of closing, where RocksDB was thrown out of.
  void Leave();

  static inline std::atomic<std::uint64_t> newest_serial_ = 0;

  const ProcessMark mark_;
  const std::uint64_t serial_ = ++newest_serial_;
  const Role role_;
  const std::string directory_;
  const Options options_;
  std::shared_ptr<StoreLock> lock_;  // Goes last.
  // The lock that RocksDB takes in the directory.
  const std::shared_ptr<DbLock> db_lock_;
  std::shared_ptr<rocksdb::Env> env_;
  // Room for what Leave() keeps, made while there is memory.
  struct Left {
    std::shared_ptr<StoreLock> lock;
    std::shared_ptr<rocksdb::Env> env;
  };
  std::unique_ptr<Left> left_ = std::make_unique<Left>();
  // The database, and the same as what catches; null until it is open.
  rocksdb::DB* db_ = nullptr;
  std::unique_ptr<CaughtDb> caught_;
  rocksdb::ColumnFamilyHandle* default_family_ = nullptr;
  std::array<rocksdb::ColumnFamilyHandle*, schema::kSpaceCount> families_{};
  rocksdb::ColumnFamilyHandle* leaf_copies_ = nullptr;
  mutable std::atomic<bool> told_of_copy_ = false;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_INSTANCE_H_
