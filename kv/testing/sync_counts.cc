// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/sync_counts.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

template <typename Base, typename File>
class CountingFile : public Base {
 public:
  CountingFile(std::unique_ptr<File> file, std::string path, SyncCounts* counts)
      : Base(std::move(file)), path_(std::move(path)), counts_(counts) {}

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = Base::Sync(options, dbg);
    if (counts_->Count(path_)) return status;
    return IOStatus::IOError("a sync that fails, says the test");
  }

 private:
  const std::string path_;
  SyncCounts* const counts_;
};

class CountingFs : public rocksdb::FileSystemWrapper {
 public:
  explicit CountingFs(SyncCounts* counts)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), counts_(counts) {}

  const char* Name() const override { return "ckptree.SyncCounts"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    return Opened<rocksdb::FSWritableFileOwnerWrapper>(
        FileSystemWrapper::NewWritableFile(path, options, file, dbg), path,
        file);
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* dbg) override {
    return Opened<rocksdb::FSRandomRWFileOwnerWrapper>(
        FileSystemWrapper::NewRandomRWFile(path, options, file, dbg), path,
        file);
  }

 private:
  template <typename Wrapper, typename File>
  IOStatus Opened(IOStatus status, const std::string& path,
                  std::unique_ptr<File>* file) {
    if (status.ok()) {
      *file = std::make_unique<CountingFile<Wrapper, File>>(std::move(*file),
                                                            path, counts_);
    }
    return status;
  }

  SyncCounts* const counts_;
};

}  // namespace

void SyncCounts::Fail(const std::string& name) {
  const absl::MutexLock lock(&mu_);
  failing_ = name;
}

bool SyncCounts::Count(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const absl::MutexLock lock(&mu_);
  ++syncs_[name];
  return failing_.empty() || !name.starts_with(failing_);
}

int SyncCounts::Sum(const std::string& name) const {
  int sum = 0;
  for (const auto& [file, syncs] : syncs_) {
    if (file.starts_with(name)) sum += syncs;
  }
  return sum;
}

int SyncCounts::Of(const std::string& name) const {
  const absl::ReaderMutexLock lock(&mu_);
  return Sum(name);
}

bool SyncCounts::WaitFor(const std::string& name, int syncs,
                         absl::Duration patience) const {
  const absl::ReaderMutexLock lock(&mu_);
  const auto there = [&] {
    mu_.AssertReaderHeld();
    return Sum(name) >= syncs;
  };
  return mu_.AwaitWithTimeout(absl::Condition(&there), patience);
}

std::shared_ptr<void> MakeSyncCountingDisk(SyncCounts* counts) {
  return std::static_pointer_cast<rocksdb::FileSystem>(
      std::make_shared<CountingFs>(counts));
}

}  // namespace ckptree::kv
