#include "kv/instance.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/logger.h"
#include "kv/open_files.h"
#include "kv/rocksdb_options.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

std::size_t CountTables(const Options& options, const std::string& directory) {
  const auto names = ListDirectory(options, directory);
  if (!names.ok()) return 0;
  return static_cast<std::size_t>(
      std::count_if(names->begin(), names->end(), [](const std::string& name) {
        return name.ends_with(".sst");
      }));
}

}  // namespace

Instance::Instance(Role role, std::string directory, const Options& options,
                   std::shared_ptr<StoreLock> lock)
    : role_(role),
      directory_(std::move(directory)),
      options_(options),
      lock_(std::move(lock)),
      env_(rocksdb::NewCompositeEnv(FileSystemOf(options))) {}

absl::StatusOr<std::shared_ptr<Instance>> Instance::Open(
    Role role, const std::string& db_directory, const Options& options,
    std::shared_ptr<Watcher> watcher, std::shared_ptr<StoreLock> lock) {
  const std::shared_ptr<Instance> instance(
      new Instance(role, db_directory, options, std::move(lock)));
  rocksdb::DBOptions db_options =
      DatabaseOptions(role, instance->env_.get());
  // An own logger also keeps a reader from creating log files.
  db_options.info_log = MakeLogger(options.log);
  if (watcher != nullptr) {
    db_options.listeners.push_back(MakeListener(std::move(watcher)));
  }

  const std::vector<rocksdb::ColumnFamilyDescriptor> families =
      Families(BlockCache(), /*repaired=*/role == Role::kForensic);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::Status status;
  switch (role) {
    case Role::kCreate:
    case Role::kReadWrite:
      status = rocksdb::DB::Open(db_options, db_directory, families, &handles,
                                 &instance->db_);
      break;
    case Role::kReadOnly:
    case Role::kForensic:
      status = rocksdb::DB::OpenForReadOnly(db_options, db_directory, families,
                                            &handles, &instance->db_);
      break;
    case Role::kFollower: {
      // A follower keeps every table open: the writer may remove it.
      const std::size_t tables = CountTables(options, db_directory);
      if (!RoomForTables(tables)) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "%s has %d tables, which a reader beside a writer holds open, and "
            "this process may not open so many files: raise its limit "
            "(ulimit -Hn)",
            db_directory, tables));
      }
      db_options.max_open_files = -1;
      status = rocksdb::DB::OpenForReadOnly(db_options, db_directory, families,
                                            &handles, &instance->db_);
      break;
    }
  }
  if (!status.ok()) {
    absl::Status failed =
        ToStatus(status, absl::StrFormat("opening %s", db_directory));
    // There is a store: what its CURRENT and MANIFEST do not lead to is damage,
    // not absence, and families that they do not name are not a wrong argument.
    if (role != Role::kCreate &&
        (absl::IsNotFound(failed) || absl::IsInvalidArgument(failed))) {
      failed = absl::DataLossError(
          absl::StrFormat("%s (CURRENT or MANIFEST is damaged)",
                          std::string(failed.message())));
    }
    return failed;
  }
  instance->default_family_ = handles[0];
  for (std::size_t i = 0; i < instance->families_.size(); ++i) {
    instance->families_[i] = handles[i + 1];
  }
  return instance;
}

Instance::~Instance() {
  if (!mark_.Holds()) {
    // The parent's threads that closing would wait for are not here.
    static_cast<void>(new std::shared_ptr<rocksdb::Env>(std::move(env_)));
    return;
  }
  if (db_ == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  db_->DestroyColumnFamilyHandle(default_family_).PermitUncheckedError();
  delete db_;
}

absl::StatusOr<std::optional<std::string>> Instance::Get(
    schema::Space space, std::string_view key) const {
  std::string value;
  const rocksdb::Status status =
      db_->Get(rocksdb::ReadOptions(), family(space), key, &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return ToStatus(status, "reading");
  return value;
}

absl::Status Instance::Shutdown() {
  rocksdb::CancelAllBackgroundWork(db_, /*wait=*/true);
  return absl::OkStatus();
}

}  // namespace ckptree::kv
