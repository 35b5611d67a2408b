// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/second_read.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kv/files/status.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// Thread-safe.
class RandomFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  using FSRandomAccessFileOwnerWrapper::FSRandomAccessFileOwnerWrapper;

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions& options,
                Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    return WithSecondTry([&] {
      return target()->Read(offset, n, options, result, scratch, dbg);
    });
  }

  IOStatus MultiRead(rocksdb::FSReadRequest* requests, std::size_t count,
                     const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = target()->MultiRead(requests, count, options, dbg);
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < count; ++i) {
      rocksdb::FSReadRequest& one = requests[i];
      if (!MayBeWellAgain(one.status)) continue;
      one.status = target()->Read(one.offset, one.len, options, &one.result,
                                  one.scratch, dbg);
    }
    return status;
  }
};

// Confined to one thread.
class FileFromItsStart : public rocksdb::FSSequentialFile {
 public:
  FileFromItsStart(std::unique_ptr<rocksdb::FSSequentialFile> file,
                   rocksdb::FileSystem* file_system, std::string path,
                   const rocksdb::FileOptions& options)
      : file_(std::move(file)),
        file_system_(file_system),
        path_(std::move(path)),
        options_(options) {}

  IOStatus Read(std::size_t n, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* dbg) override {
    IOStatus status = file_->Read(n, options, result, scratch, dbg);
    if (MayBeWellAgain(status)) {
      // Nobody knows how far the file is behind a read that failed.
      std::unique_ptr<rocksdb::FSSequentialFile> again;
      IOStatus opened =
          file_system_->NewSequentialFile(path_, options_, &again, dbg);
      if (opened.ok()) opened = again->Skip(at_);
      if (!opened.ok()) return status;
      file_ = std::move(again);
      status = file_->Read(n, options, result, scratch, dbg);
    }
    if (status.ok()) at_ += result->size();
    return status;
  }
  IOStatus Skip(std::uint64_t n) override {
    IOStatus status = file_->Skip(n);
    if (status.ok()) at_ += n;
    return status;
  }
  IOStatus PositionedRead(std::uint64_t offset, std::size_t n,
                          const IOOptions& options, Slice* result,
                          char* scratch, IODebugContext* dbg) override {
    return WithSecondTry([&] {
      return file_->PositionedRead(offset, n, options, result, scratch, dbg);
    });
  }
  bool use_direct_io() const override { return file_->use_direct_io(); }
  std::size_t GetRequiredBufferAlignment() const override {
    return file_->GetRequiredBufferAlignment();
  }
  IOStatus InvalidateCache(std::size_t offset, std::size_t length) override {
    return file_->InvalidateCache(offset, length);
  }
  rocksdb::Temperature GetTemperature() const override {
    return file_->GetTemperature();
  }

 private:
  std::unique_ptr<rocksdb::FSSequentialFile> file_;
  rocksdb::FileSystem* const file_system_;
  const std::string path_;
  const rocksdb::FileOptions options_;
  std::uint64_t at_ = 0;
};

}  // namespace

bool MayBeWellAgain(const IOStatus& status) {
  return status.IsIOError() && !status.IsPathNotFound() &&
         ToStatus(status, "").code() == absl::StatusCode::kUnknown;
}

std::unique_ptr<rocksdb::FSRandomAccessFile> WithSecondReads(
    std::unique_ptr<rocksdb::FSRandomAccessFile> file) {
  return std::make_unique<RandomFile>(std::move(file));
}

std::unique_ptr<rocksdb::FSSequentialFile> WithSecondReads(
    std::unique_ptr<rocksdb::FSSequentialFile> file,
    rocksdb::FileSystem* file_system, std::string path,
    const rocksdb::FileOptions& options) {
  return std::make_unique<FileFromItsStart>(std::move(file), file_system,
                                            std::move(path), options);
}

}  // namespace ckptree::kv
