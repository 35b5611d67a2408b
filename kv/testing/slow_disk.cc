// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/slow_disk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class Disk {
 public:
  explicit Disk(std::uint64_t bytes_per_second)
      : seconds_per_byte_(1 / static_cast<double>(bytes_per_second)) {}

  void Write(std::size_t bytes) {
    absl::Time until;
    {
      const absl::MutexLock lock(&mu_);
      free_ = std::max(free_, absl::Now()) +
              absl::Seconds(seconds_per_byte_ * static_cast<double>(bytes));
      until = free_;
    }
    absl::SleepFor(until - absl::Now());
  }

 private:
  const double seconds_per_byte_;
  absl::Mutex mu_;
  absl::Time free_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

class SlowFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  SlowFile(std::unique_ptr<rocksdb::FSWritableFile> file,
           std::shared_ptr<Disk> disk)
      : FSWritableFileOwnerWrapper(std::move(file)), disk_(std::move(disk)) {}
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    disk_->Write(data.size());
    return FSWritableFileOwnerWrapper::Append(data, options, dbg);
  }

 private:
  const std::shared_ptr<Disk> disk_;
};

class SlowFs : public rocksdb::FileSystemWrapper {
 public:
  explicit SlowFs(std::uint64_t bytes_per_second)
      : FileSystemWrapper(rocksdb::FileSystem::Default()),
        disk_(std::make_shared<Disk>(bytes_per_second)) {}

  const char* Name() const override { return "ckptree.SlowDisk"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    return Opened(FileSystemWrapper::NewWritableFile(path, options, file, dbg),
                  file);
  }
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    return Opened(
        FileSystemWrapper::ReopenWritableFile(path, options, file, dbg), file);
  }

 private:
  IOStatus Opened(IOStatus status,
                  std::unique_ptr<rocksdb::FSWritableFile>* file) {
    if (status.ok()) {
      *file = std::make_unique<SlowFile>(std::move(*file), disk_);
    }
    return status;
  }

  const std::shared_ptr<Disk> disk_;
};

}  // namespace

std::shared_ptr<void> MakeSlowDisk(std::uint64_t bytes_per_second) {
  return std::static_pointer_cast<rocksdb::FileSystem>(
      std::make_shared<SlowFs>(bytes_per_second));
}

}  // namespace ckptree::kv
