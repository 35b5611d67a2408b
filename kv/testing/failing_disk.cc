// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/failing_disk.h"

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

template <typename Call>
IOStatus Run(FailurePlan* plan, Call&& call) {
  if (plan->Fails()) {
    if (plan->throws()) throw std::bad_alloc();
    return IOStatus::IOError("injected");
  }
  return std::forward<Call>(call)();
}

class FailingFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FailingFile(std::unique_ptr<rocksdb::FSWritableFile> file, FailurePlan* plan)
      : FSWritableFileOwnerWrapper(std::move(file)), plan_(plan) {}
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FSWritableFileOwnerWrapper::Append(data, options, dbg);
    });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_,
               [&] { return FSWritableFileOwnerWrapper::Sync(options, dbg); });
  }
  IOStatus RangeSync(std::uint64_t offset, std::uint64_t bytes,
                     const IOOptions& options, IODebugContext* dbg) override {
    if (plan_->WriteBackFails()) return IOStatus::IOError("injected");
    return FSWritableFileOwnerWrapper::RangeSync(offset, bytes, options, dbg);
  }

 private:
  FailurePlan* const plan_;
};

class FailingRwFile : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  FailingRwFile(std::unique_ptr<rocksdb::FSRandomRWFile> file,
                FailurePlan* plan)
      : FSRandomRWFileOwnerWrapper(std::move(file)), plan_(plan) {}
  IOStatus Write(std::uint64_t offset, const rocksdb::Slice& data,
                 const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FSRandomRWFileOwnerWrapper::Write(offset, data, options, dbg);
    });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_,
               [&] { return FSRandomRWFileOwnerWrapper::Sync(options, dbg); });
  }

 private:
  FailurePlan* const plan_;
};

class FailingDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  FailingDirectory(std::unique_ptr<rocksdb::FSDirectory> directory,
                   FailurePlan* plan)
      : FSDirectoryWrapper(std::move(directory)), plan_(plan) {}
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_, [&] { return FSDirectoryWrapper::Fsync(options, dbg); });
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg,
                               const rocksdb::DirFsyncOptions& sync) override {
    return Run(plan_, [&] {
      return FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, sync);
    });
  }

 private:
  FailurePlan* const plan_;
};

class FailingFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit FailingFileSystem(FailurePlan* plan)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), plan_(plan) {}
  const char* Name() const override { return "FailingFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    return Opened(file, [&] {
      return FileSystemWrapper::NewWritableFile(path, options, file, dbg);
    });
  }
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    return Opened(file, [&] {
      return FileSystemWrapper::ReopenWritableFile(path, options, file, dbg);
    });
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status =
        FileSystemWrapper::NewRandomRWFile(path, options, file, dbg);
    if (status.ok()) {
      *file = std::make_unique<FailingRwFile>(std::move(*file), plan_);
    }
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext* dbg) override {
    IOStatus status =
        FileSystemWrapper::NewDirectory(path, options, directory, dbg);
    if (status.ok()) {
      *directory =
          std::make_unique<FailingDirectory>(std::move(*directory), plan_);
    }
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FileSystemWrapper::DeleteFile(path, options, dbg);
    });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FileSystemWrapper::RenameFile(from, to, options, dbg);
    });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const IOOptions& options, IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FileSystemWrapper::LinkFile(from, to, options, dbg);
    });
  }
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    return Run(plan_, [&] {
      return FileSystemWrapper::CreateDir(path, options, dbg);
    });
  }

 private:
  template <typename Open>
  IOStatus Opened(std::unique_ptr<rocksdb::FSWritableFile>* file, Open&& open) {
    IOStatus status = Run(plan_, std::forward<Open>(open));
    if (status.ok()) {
      *file = std::make_unique<FailingFile>(std::move(*file), plan_);
    }
    return status;
  }

  FailurePlan* const plan_;
};

}  // namespace

void FailurePlan::Arm(std::int64_t at, bool from_then_on) {
  count_ = 0;
  failed_ = 0;
  sticky_ = from_then_on;
  fail_at_ = at;
}

bool FailurePlan::Fails() {
  const std::int64_t n = count_++;
  const std::int64_t at = fail_at_;
  if (at < 0 || (n != at && !(sticky_ && n > at))) return false;
  ++failed_;
  return true;
}

std::shared_ptr<void> MakeFailingDisk(FailurePlan* plan) {
  const std::shared_ptr<rocksdb::FileSystem> disk =
      std::make_shared<FailingFileSystem>(plan);
  return disk;
}

}  // namespace ckptree::kv
