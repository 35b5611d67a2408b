// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/guard.h"

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/files/file_system_of.h"
#include "kv/files/permissions.h"
#include "kv/options.h"
#include "kv/rocks/fresh_table.h"
#include "kv/rocks/kept_reads.h"
#include "kv/rocks/second_read.h"
#include "kv/rocks/table_check.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::DirFsyncOptions;
using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomRWFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// What opening the store depends on, other than tables.
bool NamesTables(std::string_view path) {
  const std::string_view name = BaseName(path);
  return name.starts_with("MANIFEST-") || name == "CURRENT" ||
         name.ends_with(".dbtmp");
}

bool MayBeNamed(std::string_view path) {
  const std::string_view name = BaseName(path);
  return name.starts_with("MANIFEST-") || name.ends_with(".sst") ||
         name.ends_with(".log");
}

// Of the last tables that were written, how many names are known: RocksDB opens
// one soon after it wrote it, and some of staging/ it never opens.
constexpr std::size_t kMostFresh = 64;

// Shared by the file system and the files it opened.
class Failures {
 public:
  explicit Failures(std::function<void(std::string_view)> on_failure)
      : on_failure_(std::move(on_failure)) {}

  bool any() const { return any_.load(); }

  IOStatus Note(IOStatus status, std::string_view path) {
    if (!status.ok() && !any_.exchange(true) && on_failure_) {
      on_failure_(std::string(path) + ": " + status.ToString());
    }
    return status;
  }

 private:
  std::atomic<bool> any_{false};
  std::function<void(std::string_view)> on_failure_;
};

// What RocksDB cannot bear of any file it writes.
class ForbearingFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;

  // The start of a write-back: what it lost the next sync must not call safe.
  IOStatus RangeSync(std::uint64_t offset, std::uint64_t bytes,
                     const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status =
        FSWritableFileOwnerWrapper::RangeSync(offset, bytes, options, dbg);
    if (!status.ok() && lost_.ok()) lost_ = std::move(status);
    return IOStatus::OK();
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = FSWritableFileOwnerWrapper::Sync(options, dbg);
    return lost_.ok() ? status : lost_;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = FSWritableFileOwnerWrapper::Fsync(options, dbg);
    return lost_.ok() ? status : lost_;
  }

 private:
  IOStatus lost_;
};

class NotingFile : public ForbearingFile {
 public:
  NotingFile(std::unique_ptr<FSWritableFile> file, std::string path,
             std::shared_ptr<Failures> failures)
      : ForbearingFile(std::move(file)),
        path_(std::move(path)),
        failures_(std::move(failures)) {}

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    return Note(FSWritableFileOwnerWrapper::Append(data, options, dbg));
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification,
                  IODebugContext* dbg) override {
    return Note(
        FSWritableFileOwnerWrapper::Append(data, options, verification, dbg));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* dbg) override {
    return Note(FSWritableFileOwnerWrapper::Flush(options, dbg));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return Note(ForbearingFile::Sync(options, dbg));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return Note(ForbearingFile::Fsync(options, dbg));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    return Note(FSWritableFileOwnerWrapper::Close(options, dbg));
  }

 private:
  IOStatus Note(IOStatus status) {
    return failures_->Note(std::move(status), path_);
  }

  const std::string path_;
  const std::shared_ptr<Failures> failures_;
};

class NotingDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  NotingDirectory(std::unique_ptr<FSDirectory> directory, std::string path,
                  std::shared_ptr<Failures> failures)
      : FSDirectoryWrapper(std::move(directory)),
        path_(std::move(path)),
        failures_(std::move(failures)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return failures_->Note(FSDirectoryWrapper::Fsync(options, dbg), path_);
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg,
                               const DirFsyncOptions& sync) override {
    return failures_->Note(
        FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, sync), path_);
  }

 private:
  const std::string path_;
  const std::shared_ptr<Failures> failures_;
};

thread_local bool damaged_tables_welcome = false;

// What is true of both guards.
class TableGuard : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;

  IOStatus NewRandomAccessFile(
      const std::string& path, const FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
      IODebugContext* dbg) override {
    IOStatus status =
        WithSecondTry([&] { return OpenTable(path, options, file, dbg); });
    if (status.ok()) *file = WithSecondReads(std::move(*file));
    if (KeptReads* const kept = KeptReads::Current();
        status.ok() && kept != nullptr) {
      *file = kept->Keeping(std::move(*file), path);
    }
    if (!status.ok() || damaged_tables_welcome || !path.ends_with(".sst")) {
      return status;
    }
    std::uint64_t bytes = 0;
    status = FileSystemWrapper::GetFileSize(path, IOOptions(), &bytes, dbg);
    if (status.ok() && CheckOpening(file->get(), bytes) == Opening::kHarmful) {
      status = IOStatus::Corruption(path, "its properties are damaged");
    }
    if (!status.ok()) file->reset();
    return status;
  }
  IOStatus NewSequentialFile(const std::string& path,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext* dbg) override {
    IOStatus status = WithSecondTry([&] {
      return FileSystemWrapper::NewSequentialFile(path, options, file, dbg);
    });
    if (status.ok()) {
      *file = WithSecondReads(std::move(*file), target(), path, options);
    }
    return status;
  }

 protected:
  virtual IOStatus OpenTable(const std::string& path,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                             IODebugContext* dbg) {
    return FileSystemWrapper::NewRandomAccessFile(path, options, file, dbg);
  }
};

class WriterGuard : public TableGuard {
 public:
  WriterGuard(const std::shared_ptr<rocksdb::FileSystem>& base, int permissions,
              std::function<void(std::string_view)> on_failure,
              std::shared_ptr<HeldRoom> room)
      : TableGuard(base),
        file_mode_(WithoutUmask(FileMode(permissions))),
        folder_mode_(WithoutUmask(FolderMode(permissions))),
        failures_(std::make_shared<Failures>(std::move(on_failure))),
        room_(std::move(room)) {}

  const char* Name() const override { return "ckptree.WriterGuard"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file,
                           IODebugContext* dbg) override {
    if (path.ends_with(".sst")) {
      const absl::MutexLock lock(&mutex_);
      fresh_.push_back(path);
      if (fresh_.size() > kMostFresh) fresh_.pop_front();
    }
    if (InHeldRoom(path, options, file, dbg)) {
      return Opened(IOStatus::OK(), path, file);
    }
    return Opened(FileSystemWrapper::NewWritableFile(path, options, file, dbg),
                  path, file);
  }
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file,
                              IODebugContext* dbg) override {
    return Opened(
        FileSystemWrapper::ReopenWritableFile(path, options, file, dbg), path,
        file);
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old,
                             const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* file,
                             IODebugContext* dbg) override {
    return Opened(
        FileSystemWrapper::ReuseWritableFile(path, old, options, file, dbg),
        path, file);
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<FSDirectory>* directory,
                        IODebugContext* dbg) override {
    IOStatus status =
        FileSystemWrapper::NewDirectory(path, options, directory, dbg);
    if (status.ok()) {
      *directory = std::make_unique<NotingDirectory>(std::move(*directory),
                                                     path, failures_);
    }
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* dbg) override {
    // RocksDB syncs the directory only after the rename: a file system that
    // keeps the rename and loses what came before it would leave a CURRENT that
    // leads to a MANIFEST or tables that are not there.
    IOStatus status =
        BaseName(to) == "CURRENT" ? SyncDirectoryOf(to, dbg) : IOStatus::OK();
    if (status.ok()) {
      status = FileSystemWrapper::RenameFile(from, to, options, dbg);
    }
    return NamesTables(to) ? failures_->Note(std::move(status), to) : status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (failures_->any() && MayBeNamed(path)) {
      return IOStatus::IOError(path, "kept after a failed MANIFEST write");
    }
    return FileSystemWrapper::DeleteFile(path, options, dbg);
  }
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    IOStatus status = FileSystemWrapper::CreateDir(path, options, dbg);
    // Not there in a file system of a test: then there is nothing to protect.
    if (status.ok()) static_cast<void>(::chmod(path.c_str(), folder_mode_));
    return status;
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options,
                              IODebugContext* dbg) override {
    if (FileSystemWrapper::FileExists(path, options, dbg).ok()) {
      return FileSystemWrapper::CreateDirIfMissing(path, options, dbg);
    }
    IOStatus status = CreateDir(path, options, dbg);
    if (status.ok()) return status;
    const bool there = FileSystemWrapper::FileExists(path, options, dbg).ok();
    // Somebody else made it just now.
    return there ? FileSystemWrapper::CreateDirIfMissing(path, options, dbg)
                 : status;
  }
  IOStatus LockFile(const std::string& path, const IOOptions& options,
                    rocksdb::FileLock** lock, IODebugContext* dbg) override {
    IOStatus status = FileSystemWrapper::LockFile(path, options, lock, dbg);
    if (status.ok()) static_cast<void>(::chmod(path.c_str(), file_mode_));
    return status;
  }

 protected:
  IOStatus OpenTable(const std::string& path, const FileOptions& options,
                     std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                     IODebugContext* dbg) override {
    return IsFresh(path) ? OpenFreshTable(target(), path, options, file, dbg)
                         : TableGuard::OpenTable(path, options, file, dbg);
  }

 private:
  // Makes the new file out of the room that is held for it.
  bool InHeldRoom(const std::string& path, const FileOptions& options,
                  std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) {
    std::uint64_t bytes = 0;
    if (room_ == nullptr || !room_->Take(path, &bytes)) return false;
    if (!FileSystemWrapper::RenameFile(room_->path(), path, IOOptions(), dbg)
             .ok()) {
      FileSystemWrapper::DeleteFile(room_->path(), IOOptions(), dbg)
          .PermitUncheckedError();
      return false;
    }
    if (!FileSystemWrapper::ReopenWritableFile(path, options, file, dbg).ok()) {
      return false;
    }
    // So that its end gives back what it did not need.
    (*file)->SetPreallocationBlockSize(bytes);
    return true;
  }

  // Whether the table was written here and is asked for the first time.
  bool IsFresh(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    return std::erase(fresh_, path) > 0;
  }

  IOStatus SyncDirectoryOf(const std::string& path, IODebugContext* dbg) {
    std::unique_ptr<FSDirectory> directory;
    IOStatus status = FileSystemWrapper::NewDirectory(
        path.substr(0, path.rfind('/')), IOOptions(), &directory, dbg);
    if (!status.ok()) return status;
    return directory->Fsync(IOOptions(), dbg);
  }

  IOStatus Opened(IOStatus status, const std::string& path,
                  std::unique_ptr<FSWritableFile>* file) {
    if (!status.ok()) {
      return NamesTables(path) ? failures_->Note(std::move(status), path)
                               : status;
    }
    static_cast<void>(::chmod(path.c_str(), file_mode_));
    if (NamesTables(path)) {
      *file = std::make_unique<NotingFile>(std::move(*file), path, failures_);
    } else {
      *file = std::make_unique<ForbearingFile>(std::move(*file));
    }
    return status;
  }

  const mode_t file_mode_;
  const mode_t folder_mode_;
  const std::shared_ptr<Failures> failures_;
  const std::shared_ptr<HeldRoom> room_;  // May be null.
  absl::Mutex mutex_;
  std::deque<std::string> fresh_ ABSL_GUARDED_BY(mutex_);
};

class ReaderGuard : public TableGuard {
 public:
  using TableGuard::TableGuard;

  const char* Name() const override { return "ckptree.ReaderGuard"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<FSWritableFile>*,
                           IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions&,
                              std::unique_ptr<FSWritableFile>*,
                              IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string&,
                             const FileOptions&,
                             std::unique_ptr<FSWritableFile>*,
                             IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<FSRandomRWFile>*,
                           IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&,
                      IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus Truncate(const std::string& path, std::size_t, const IOOptions&,
                    IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&,
                     IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&,
                              IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&,
                     IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus RenameFile(const std::string& path, const std::string&,
                      const IOOptions&, IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus LinkFile(const std::string& path, const std::string&,
                    const IOOptions&, IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus LockFile(const std::string& path, const IOOptions&,
                    rocksdb::FileLock**, IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus NewLogger(const std::string& path, const IOOptions&,
                     std::shared_ptr<rocksdb::Logger>*,
                     IODebugContext*) override {
    return Refuse(path);
  }

 private:
  static IOStatus Refuse(const std::string& path) {
    return IOStatus::NotSupported("opened for reading, refused to change",
                                  path);
  }
};

}  // namespace

DamagedTablesWelcome::DamagedTablesWelcome() { damaged_tables_welcome = true; }
DamagedTablesWelcome::~DamagedTablesWelcome() {
  damaged_tables_welcome = false;
}

Options Guarded(const Options& options, Guard guard,
                std::function<void(std::string_view text)> on_failure,
                std::shared_ptr<HeldRoom> room) {
  const std::shared_ptr<rocksdb::FileSystem> base = FileSystemOf(options);
  std::shared_ptr<rocksdb::FileSystem> wrapped;
  if (guard == Guard::kWriter) {
    wrapped = std::make_shared<WriterGuard>(
        base, options.permissions, std::move(on_failure), std::move(room));
  } else {
    wrapped = std::make_shared<ReaderGuard>(base);
  }
  Options guarded = options;
  guarded.file_system = wrapped;
  return guarded;
}

}  // namespace ckptree::kv
