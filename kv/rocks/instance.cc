// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/instance.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/process_use.h"
#include "kv/rocks/caught_db.h"
#include "kv/rocks/leaf_copies.h"
#include "kv/rocks/logger.h"
#include "kv/rocks/open_files.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/store_directory.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

std::size_t CountTables(const Options& options, const std::string& directory) {
  const auto names = ListDirectory(options, directory);
  if (!names.ok()) return 0;
  return static_cast<std::size_t>(std::count_if(
      names->begin(), names->end(),
      [](const std::string& name) { return name.ends_with(".sst"); }));
}

// Of a store that an older engine made, or whose MANIFEST was made anew.
bool LacksLeafCopies(const rocksdb::Status& status) {
  return status.IsInvalidArgument() &&
         status.ToString().find(kLeafCopiesName) != std::string::npos;
}

}  // namespace

// Passes everything on, and can give RocksDB's lock back by itself.
class DbLock : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;

  const char* Name() const override { return "ckptree.DbLock"; }
  rocksdb::IOStatus LockFile(const std::string& path,
                             const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock,
                             rocksdb::IODebugContext* dbg) override {
    rocksdb::IOStatus status =
        FileSystemWrapper::LockFile(path, options, lock, dbg);
    if (status.ok()) lock_ = *lock;
    return status;
  }
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    lock_ = nullptr;
    return FileSystemWrapper::UnlockFile(lock, options, dbg);
  }
  void GiveBack() {
    if (lock_ == nullptr) return;
    UnlockFile(lock_, rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  }

 private:
  rocksdb::FileLock* lock_ = nullptr;
};

Instance::Instance(Role role, std::string directory, const Options& options,
                   std::shared_ptr<StoreLock> lock)
    : role_(role),
      directory_(std::move(directory)),
      options_(options),
      lock_(std::move(lock)),
      db_lock_(std::make_shared<DbLock>(FileSystemOf(options))),
      env_(rocksdb::NewCompositeEnv(db_lock_)) {}

namespace {

// RocksDB reads these as a whole. kDataLoss names one that is too large.
absl::Status CheckControlFiles(const Options& options,
                               const std::string& db_directory) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
  const absl::StatusOr<std::vector<std::string>> names =
      ListDirectory(options, db_directory);
  if (!names.ok()) return absl::OkStatus();  // The open says why.
  for (const std::string& name : *names) {
    if (name != "CURRENT" && name != "IDENTITY" &&
        !name.starts_with("OPTIONS-")) {
      continue;
    }
    const std::string path = Join(db_directory, name);
    const absl::StatusOr<std::uint64_t> bytes = FileSize(options, path);
    if (bytes.ok() && *bytes > kMostBytes) {
      return absl::DataLossError(absl::StrFormat(
          "%s is damaged: it has %d bytes, at most %d are possible", path,
          *bytes, kMostBytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Instance>> Instance::Open(
    Role role, const std::string& db_directory, const Options& options,
    std::shared_ptr<Watcher> watcher, std::shared_ptr<StoreLock> lock) {
  const std::shared_ptr<Instance> instance(
      new Instance(role, db_directory, options, std::move(lock)));
  CKPTREE_RETURN_IF_ERROR(CheckControlFiles(options, db_directory));
  rocksdb::DBOptions db_options = DatabaseOptions(role, instance->env_.get());
  // An own logger also keeps a reader from creating log files.
  db_options.info_log = MakeLogger(options.log);
  if (watcher != nullptr) {
    db_options.listeners.push_back(MakeListener(watcher));
  }

  if (role == Role::kFollower) {
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
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> families =
      Families(BlockCache(), /*repaired=*/role == Role::kForensic);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  if (!IsMemoryToWrite()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("opening %s: there is no memory", db_directory));
  }
  rocksdb::Status status =
      instance->OpenDb(watcher, db_options, families, &handles);
  if (LacksLeafCopies(status)) {
    const rocksdb::ColumnFamilyDescriptor copies = families.back();
    families.pop_back();
    status = instance->OpenDb(watcher, db_options, families, &handles);
    if (status.ok() && role == Role::kReadWrite) {
      rocksdb::ColumnFamilyHandle* made = nullptr;
      status =
          instance->db_->CreateColumnFamily(copies.options, copies.name, &made);
      if (status.ok()) handles.push_back(made);
    }
  }
  if (handles.size() > instance->families_.size()) {
    instance->default_family_ = handles[0];
    for (std::size_t i = 0; i < instance->families_.size(); ++i) {
      instance->families_[i] = handles[i + 1];
    }
    if (handles.size() > instance->families_.size() + 1) {
      instance->leaf_copies_ = handles.back();
    }
  }
  if (!status.ok()) {
    const std::string opening = absl::StrFormat("opening %s", db_directory);
    // A writer may have failed to write.
    const bool reads = role != Role::kCreate && role != Role::kReadWrite;
    absl::Status failed =
        reads ? ToReadStatus(status, opening) : ToStatus(status, opening);
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
  return instance;
}

rocksdb::Status Instance::OpenDb(
    std::shared_ptr<Watcher> watcher, const rocksdb::DBOptions& options,
    const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
    std::vector<rocksdb::ColumnFamilyHandle*>* handles) {
  const ForkHold hold;
  const bool writes = role_ == Role::kCreate || role_ == Role::kReadWrite;
  // Made before there is something to lose.
  auto caught = std::make_unique<CaughtDb>(writes, [watcher] {
    if (watcher != nullptr) watcher->Abandon();
  });
  const rocksdb::Status status = caught->Open([&](rocksdb::DB** opened) {
    return writes ? rocksdb::DB::Open(options, directory_, families, handles,
                                      opened)
                  : rocksdb::DB::OpenForReadOnly(options, directory_, families,
                                                 handles, opened);
  });
  // Also where it was thrown out of: then it is to be left.
  if (status.ok() || caught->harm() != CaughtDb::Harm::kNone) {
    caught_ = std::move(caught);
    db_ = caught_->db();
  }
  return status;
}

void Instance::Leave() {
  try {
    if (role_ == Role::kCreate || role_ == Role::kReadWrite) {
      Shutdown().IgnoreError();
    }
  } catch (const std::bad_alloc&) {
    caught_->Note(CaughtDb::Harm::kStuck);
  }
  if (caught_->harm() == CaughtDb::Harm::kStuck) {
    // Nobody else may open the store while its threads are there.
    left_->lock = std::move(lock_);
  } else {
    db_lock_->GiveBack();
  }
  // Everything that it stands on stays with it.
  left_->env = std::move(env_);
  static_cast<void>(left_.release());
  static_cast<void>(caught_.release());
}

Instance::~Instance() {
  if (!mark_.Holds()) {
    // The parent's threads that closing would wait for are not here.
    static_cast<void>(caught_.release());
    static_cast<void>(new std::shared_ptr<rocksdb::Env>(std::move(env_)));
    return;
  }
  if (db_ == nullptr) return;
  // A database that closes allocates, where nothing may be thrown.
  if (!IsMemoryToWrite()) caught_->Note(CaughtDb::Harm::kHeld);
  if (caught_->harm() != CaughtDb::Harm::kNone) {
    Leave();
    return;
  }
  const ForkHold hold;
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  if (leaf_copies_ != nullptr) {
    db_->DestroyColumnFamilyHandle(leaf_copies_).PermitUncheckedError();
  }
  db_->DestroyColumnFamilyHandle(default_family_).PermitUncheckedError();
  caught_.reset();
}

absl::StatusOr<std::optional<std::string>> Instance::Get(
    schema::Space space, std::string_view key) const {
  rocksdb::PinnableSlice value;
  const rocksdb::Status status =
      space == schema::Space::kLeaves
          ? GetLeafRecord(*this, key, &value)
          : db_->Get(rocksdb::ReadOptions(), family(space), key, &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return ToReadStatus(status, "reading");
  return value.ToString();
}

rocksdb::Status Instance::DeleteFilesInRanges(
    rocksdb::ColumnFamilyHandle* family, const rocksdb::RangePtr* ranges,
    std::size_t count) const {
  return caught_->DeleteFilesInRanges(family, ranges, count);
}

void Instance::TellOfSecondCopy(const absl::Status& why) const {
  if (told_of_copy_.exchange(true) || options_.log == nullptr) return;
  options_.log(Severity::kWarning,
               absl::StrFormat("one of the two copies of the leaf records is "
                               "damaged, and the other one is read: %s; run "
                               "`ckptree verify --deep`",
                               why.message()));
}

absl::Status Instance::Shutdown() {
  if (caught_->harm() == CaughtDb::Harm::kStuck) return absl::OkStatus();
  // It takes the lock of RocksDB's timer, which all stores of a process share.
  const ForkHold hold;
  rocksdb::CancelAllBackgroundWork(db_, /*wait=*/true);
  return absl::OkStatus();
}

}  // namespace ckptree::kv
