// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/memory_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/files/file_system_of.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr const char* kName = "ckptree.MemoryDirectory";

std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Files that are written are those of RocksDB's own file system for memory;
// names of files elsewhere, and directories, are kept here. Thread-safe.
class MemoryDirectory : public rocksdb::FileSystemWrapper {
 public:
  MemoryDirectory(const std::shared_ptr<rocksdb::FileSystem>& base,
                  const std::string& directory)
      : FileSystemWrapper(base),
        directory_(Normal(directory)),
        env_(rocksdb::NewMemEnv(rocksdb::Env::Default())),
        memory_(env_->GetFileSystem()) {}

  const char* Name() const override { return kName; }

  IOStatus NewSequentialFile(const std::string& path,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext* dbg) override {
    const Place place = Find(path);
    return place.in->NewSequentialFile(place.path, options, file, dbg);
  }
  IOStatus NewRandomAccessFile(
      const std::string& path, const FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
      IODebugContext* dbg) override {
    const Place place = Find(path);
    return place.in->NewRandomAccessFile(place.path, options, file, dbg);
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    if (!Ours(path)) return Refuse(path);
    Unlink(path);
    return memory_->NewWritableFile(Normal(path), options, file, dbg);
  }
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    if (!Ours(path) || LinkOf(path).has_value()) return Refuse(path);
    return memory_->ReopenWritableFile(Normal(path), options, file, dbg);
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string&,
                             const FileOptions&,
                             std::unique_ptr<rocksdb::FSWritableFile>*,
                             IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<rocksdb::FSRandomRWFile>*,
                           IODebugContext*) override {
    return Refuse(path);
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext* dbg) override {
    return Ours(path)
               ? memory_->NewDirectory(Normal(path), options, directory, dbg)
               : FileSystemWrapper::NewDirectory(path, options, directory, dbg);
  }
  IOStatus FileExists(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (HasDirectory(path)) return IOStatus::OK();
    const Place place = Find(path);
    return place.in->FileExists(place.path, options, dbg);
  }
  IOStatus GetChildren(const std::string& path, const IOOptions& options,
                       std::vector<std::string>* names,
                       IODebugContext* dbg) override {
    if (!Ours(path)) {
      return FileSystemWrapper::GetChildren(Real(path), options, names, dbg);
    }
    if (!HasDirectory(path)) return IOStatus::PathNotFound(path);
    const IOStatus status =
        memory_->GetChildren(Normal(path), options, names, dbg);
    if (!status.ok()) return status;
    const std::string prefix = Normal(path) + "/";
    const absl::MutexLock lock(&mutex_);
    for (const auto& [name, target] : links_) {
      if (name.starts_with(prefix) &&
          name.find('/', prefix.size()) == std::string::npos) {
        names->push_back(name.substr(prefix.size()));
      }
    }
    // A directory in this one has an entry and may have files.
    std::sort(names->begin(), names->end());
    names->erase(std::unique(names->begin(), names->end()), names->end());
    return status;
  }
  IOStatus GetChildrenFileAttributes(
      const std::string& path, const IOOptions& options,
      std::vector<rocksdb::FileAttributes>* files,
      IODebugContext* dbg) override {
    std::vector<std::string> names;
    IOStatus status = GetChildren(path, options, &names, dbg);
    files->clear();
    for (const std::string& name : names) {
      std::uint64_t bytes = 0;
      if (!status.ok()) break;
      status = GetFileSize(path + "/" + name, options, &bytes, dbg);
      files->push_back({name, bytes});
    }
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (!Ours(path)) return Refuse(path);
    if (Unlink(path)) return IOStatus::OK();
    return memory_->DeleteFile(Normal(path), options, dbg);
  }
  IOStatus Truncate(const std::string& path, std::size_t size,
                    const IOOptions& options, IODebugContext* dbg) override {
    if (!Ours(path) || LinkOf(path).has_value()) return Refuse(path);
    return memory_->Truncate(Normal(path), size, options, dbg);
  }
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    if (!Ours(path)) return Refuse(path);
    {
      const absl::MutexLock lock(&mutex_);
      if (!directories_.insert(Normal(path)).second) {
        return IOStatus::IOError(path, "is there");
      }
    }
    return memory_->CreateDir(Normal(path), options, dbg);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options,
                              IODebugContext* dbg) override {
    const IOStatus there = FileExists(path, options, dbg);
    return there.ok() ? there : CreateDir(path, options, dbg);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    if (!Ours(path)) return Refuse(path);
    {
      const absl::MutexLock lock(&mutex_);
      directories_.erase(Normal(path));
    }
    return memory_->DeleteDir(Normal(path), options, dbg);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions& options,
                       std::uint64_t* bytes, IODebugContext* dbg) override {
    const Place place = Find(path);
    return place.in->GetFileSize(place.path, options, bytes, dbg);
  }
  IOStatus GetFileModificationTime(const std::string& path,
                                   const IOOptions& options,
                                   std::uint64_t* time,
                                   IODebugContext* dbg) override {
    const Place place = Find(path);
    return place.in->GetFileModificationTime(place.path, options, time, dbg);
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions& options,
                       bool* is_directory, IODebugContext* dbg) override {
    if (!Ours(path)) {
      return FileSystemWrapper::IsDirectory(Real(path), options, is_directory,
                                            dbg);
    }
    *is_directory = HasDirectory(path);
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* dbg) override {
    if (!Ours(from) || !Ours(to)) return Refuse(to);
    if (const auto target = LinkOf(from); target.has_value()) {
      memory_->DeleteFile(Normal(to), options, dbg).PermitUncheckedError();
      Unlink(from);
      Link(to, *target);
      return IOStatus::OK();
    }
    Unlink(to);
    return memory_->RenameFile(Normal(from), Normal(to), options, dbg);
  }
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const IOOptions& options, IODebugContext* dbg) override {
    if (!Ours(to)) return Refuse(to);
    if (FileExists(to, options, dbg).ok()) {
      return IOStatus::IOError(to, "is there");
    }
    if (const auto target = LinkOf(from); target.has_value()) {
      Link(to, *target);
      return IOStatus::OK();
    }
    if (Ours(from) && memory_->FileExists(Normal(from), options, dbg).ok()) {
      return memory_->LinkFile(Normal(from), Normal(to), options, dbg);
    }
    if (Ours(from)) return IOStatus::PathNotFound(from);
    const std::string real = Real(from);
    const IOStatus there = FileSystemWrapper::FileExists(real, options, dbg);
    if (there.ok()) Link(to, real);
    return there;
  }
  IOStatus NumFileLinks(const std::string& path, const IOOptions&,
                        std::uint64_t*, IODebugContext*) override {
    return IOStatus::NotSupported(path);
  }
  IOStatus AreFilesSame(const std::string& path, const std::string&,
                        const IOOptions&, bool*, IODebugContext*) override {
    return IOStatus::NotSupported(path);
  }
  IOStatus LockFile(const std::string& path, const IOOptions& options,
                    rocksdb::FileLock** lock, IODebugContext* dbg) override {
    if (!Ours(path)) return Refuse(path);
    return memory_->LockFile(Normal(path), options, lock, dbg);
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions& options,
                      IODebugContext* dbg) override {
    return memory_->UnlockFile(lock, options, dbg);
  }
  IOStatus NewLogger(const std::string& path, const IOOptions&,
                     std::shared_ptr<rocksdb::Logger>*,
                     IODebugContext*) override {
    return Refuse(path);
  }

 private:
  // Where a file is read.
  struct Place {
    rocksdb::FileSystem* in = nullptr;
    std::string path;
  };

  static IOStatus Refuse(const std::string& path) {
    return IOStatus::NotSupported("only a directory in memory may be changed",
                                  path);
  }

  bool Ours(const std::string& path) const {
    const std::string normal = Normal(path);
    return normal == directory_ || normal.starts_with(directory_ + "/");
  }

  // The name on the disk of what is not ours.
  std::string Real(const std::string& path) const {
    const std::string normal = Normal(path);
    const std::string shadow = OnDisk(directory_);
    if (normal != shadow && !normal.starts_with(shadow + "/")) return path;
    return directory_ + normal.substr(shadow.size());
  }

  Place Find(const std::string& path) {
    if (!Ours(path)) return {target(), Real(path)};
    if (auto link = LinkOf(path)) return {target(), *std::move(link)};
    return {memory_.get(), Normal(path)};
  }

  std::optional<std::string> LinkOf(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    const auto found = links_.find(Normal(path));
    if (found == links_.end()) return std::nullopt;
    return found->second;
  }
  void Link(const std::string& path, const std::string& to) {
    const absl::MutexLock lock(&mutex_);
    links_[Normal(path)] = to;
  }
  bool Unlink(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    return links_.erase(Normal(path)) > 0;
  }
  bool HasDirectory(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    return directories_.contains(Normal(path));
  }

  const std::string directory_;
  const std::unique_ptr<rocksdb::Env> env_;
  const std::shared_ptr<rocksdb::FileSystem> memory_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> links_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> directories_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string OnDisk(const std::string& directory) {
  return Normal(directory) + ".on-disk";
}

Options WithDirectoryInMemory(const Options& options,
                              const std::string& directory) {
  Options memory = options;
  memory.file_system = std::static_pointer_cast<rocksdb::FileSystem>(
      std::make_shared<MemoryDirectory>(FileSystemOf(options), directory));
  return memory;
}

bool IsInMemory(const Options& options) {
  return FileSystemOf(options)->IsInstanceOf(kName);
}

}  // namespace ckptree::kv
