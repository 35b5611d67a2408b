// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/cold_disk.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Longer than any read out of the page cache is taken to be.
constexpr std::chrono::microseconds kLate{60};

class ColdFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  ColdFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file,
           ColdDiskCounts* counts)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), counts_(counts) {}

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions& options,
                rocksdb::Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    const auto begun = std::chrono::steady_clock::now();
    const bool ready = !counts_->cold || IsAsked(offset, offset + n);
    ++(ready ? counts_->ready : counts_->late);
    const IOStatus status = FSRandomAccessFileOwnerWrapper::Read(
        offset, n, options, result, scratch, dbg);
    while (!ready && std::chrono::steady_clock::now() - begun < kLate) {
    }
    return status;
  }

  IOStatus Prefetch(std::uint64_t offset, std::size_t n, const IOOptions&,
                    IODebugContext*) override {
    ++counts_->asked;
    const absl::MutexLock lock(&mu_);
    asked_.emplace_back(offset, offset + n);
    return IOStatus::OK();
  }

 private:
  // By one call: none is cut in two.
  bool IsAsked(std::uint64_t begin, std::uint64_t end) const {
    const absl::MutexLock lock(&mu_);
    return std::any_of(asked_.begin(), asked_.end(), [&](const auto& range) {
      return range.first <= begin && end <= range.second;
    });
  }

  ColdDiskCounts* const counts_;
  mutable absl::Mutex mu_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked_
      ABSL_GUARDED_BY(mu_);
};

class ColdFs : public rocksdb::FileSystemWrapper {
 public:
  explicit ColdFs(ColdDiskCounts* counts)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), counts_(counts) {}

  const char* Name() const override { return "ckptree.ColdDisk"; }

  IOStatus NewRandomAccessFile(
      const std::string& path, const FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
      IODebugContext* dbg) override {
    const IOStatus status =
        FileSystemWrapper::NewRandomAccessFile(path, options, file, dbg);
    if (status.ok()) {
      *file = std::make_unique<ColdFile>(std::move(*file), counts_);
    }
    return status;
  }

 private:
  ColdDiskCounts* const counts_;
};

}  // namespace

std::shared_ptr<void> MakeColdDisk(ColdDiskCounts* counts) {
  return std::static_pointer_cast<rocksdb::FileSystem>(
      std::make_shared<ColdFs>(counts));
}

}  // namespace ckptree::kv
