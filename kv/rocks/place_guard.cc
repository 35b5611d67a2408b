// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/place_guard.h"

#include <string>
#include <utility>

#include "kv/files/file_system_of.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class PlaceGuard : public rocksdb::FileSystemWrapper {
 public:
  PlaceGuard(const std::shared_ptr<rocksdb::FileSystem>& base,
             std::shared_ptr<StorePlace> place)
      : FileSystemWrapper(base), place_(std::move(place)) {}

  const char* Name() const override { return "ckptree.PlaceGuard"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->NewWritableFile(path, options, file, dbg)
                       : status;
  }
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->ReopenWritableFile(path, options, file, dbg)
                       : status;
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* file,
                             IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok()
               ? target()->ReuseWritableFile(path, old, options, file, dbg)
               : status;
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->NewRandomRWFile(path, options, file, dbg)
                       : status;
  }
  IOStatus Truncate(const std::string& path, std::size_t size,
                    const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->Truncate(path, size, options, dbg) : status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->DeleteFile(path, options, dbg) : status;
  }
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->CreateDir(path, options, dbg) : status;
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options,
                              IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->CreateDirIfMissing(path, options, dbg)
                       : status;
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    IOStatus status = Check(path);
    return status.ok() ? target()->DeleteDir(path, options, dbg) : status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = Check(to);
    return status.ok() ? target()->RenameFile(from, to, options, dbg) : status;
  }
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = Check(to);
    return status.ok() ? target()->LinkFile(from, to, options, dbg) : status;
  }

 private:
  IOStatus Check(const std::string& path) const {
    const absl::Status status = place_->Check();
    return status.ok() ? IOStatus::OK()
                       : IOStatus::IOError(path, std::string(status.message()));
  }

  const std::shared_ptr<StorePlace> place_;
};

}  // namespace

void StorePlace::Watch(const std::shared_ptr<StoreLock>& lock) {
  const absl::MutexLock hold(&mu_);
  lock_ = lock;
}

absl::Status StorePlace::Check() const {
  std::shared_ptr<StoreLock> lock;
  {
    const absl::MutexLock hold(&mu_);
    lock = lock_.lock();
  }
  return lock == nullptr ? absl::OkStatus() : lock->Check();
}

Options InPlace(const Options& options, std::shared_ptr<StorePlace> place) {
  Options guarded = options;
  guarded.file_system =
      std::make_shared<PlaceGuard>(FileSystemOf(options), std::move(place));
  return guarded;
}

}  // namespace ckptree::kv
