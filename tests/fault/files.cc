// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/files.h"

#include <algorithm>
#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "tests/fault/disk.h"

namespace ckptree::testing {

using rocksdb::DataVerificationInfo;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

FaultWritableFile::FaultWritableFile(
    FaultFs* fs, std::string path, std::shared_ptr<FaultDisk::File> file,
    std::uint64_t end, std::unique_ptr<rocksdb::FSWritableFile> target)
    : FSWritableFileOwnerWrapper(std::move(target)),
      fs_(fs),
      path_(std::move(path)),
      file_(std::move(file)),
      end_(end) {}

IOStatus FaultWritableFile::Append(const Slice& data, const IOOptions& options,
                                   IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict =
      fs_->Enter(CallKind::kWrite, path_, data.size());
  const std::uint64_t size =
      verdict.passes() ? data.size() : verdict.partial.value_or(0);
  if (size > 0 || verdict.passes()) {
    if (file_) fs_->disk_->WillWrite(*file_, end_, size);
    IOStatus status =
        target()->Append(Slice(data.data(), size), options, debug);
    if (status.ok()) end_ += size;
    if (verdict.passes()) return status;
  }
  return fs_->Fail(verdict);
}

IOStatus FaultWritableFile::Append(const Slice& data, const IOOptions& options,
                                   const DataVerificationInfo& /*info*/,
                                   IODebugContext* debug) {
  return Append(data, options, debug);
}

IOStatus FaultWritableFile::PositionedAppend(const Slice& data,
                                             std::uint64_t offset,
                                             const IOOptions& options,
                                             IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  // Direct I/O wants whole blocks: all or nothing.
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kPwrite, path_);
  if (!verdict.passes()) return fs_->Fail(verdict);
  if (file_) fs_->disk_->WillWrite(*file_, offset, data.size());
  return target()->PositionedAppend(data, offset, options, debug);
}

IOStatus FaultWritableFile::PositionedAppend(
    const Slice& data, std::uint64_t offset, const IOOptions& options,
    const DataVerificationInfo& /*info*/, IODebugContext* debug) {
  return PositionedAppend(data, offset, options, debug);
}

IOStatus FaultWritableFile::Truncate(std::uint64_t size,
                                     const IOOptions& options,
                                     IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kTruncate, path_);
  if (!verdict.passes()) return fs_->Fail(verdict);
  if (file_) fs_->disk_->WillTruncate(*file_, size);
  IOStatus status = target()->Truncate(size, options, debug);
  if (status.ok()) end_ = size;
  return status;
}

IOStatus FaultWritableFile::SyncWith(bool metadata, const IOOptions& options,
                                     IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kSync, path_);
  if (!verdict.passes()) {
    if (verdict.drops && file_) fs_->disk_->SyncFailed(*file_);
    return fs_->Fail(verdict);
  }
  if (verdict.lies) return IOStatus::OK();
  IOStatus status = metadata ? target()->Fsync(options, debug)
                             : target()->Sync(options, debug);
  if (status.ok() && file_) fs_->disk_->Synced(*file_);
  return status;
}

IOStatus FaultWritableFile::Sync(const IOOptions& options,
                                 IODebugContext* debug) {
  return SyncWith(/*metadata=*/false, options, debug);
}

IOStatus FaultWritableFile::Fsync(const IOOptions& options,
                                  IODebugContext* debug) {
  return SyncWith(/*metadata=*/true, options, debug);
}

IOStatus FaultWritableFile::Allocate(std::uint64_t offset, std::uint64_t length,
                                     const IOOptions& options,
                                     IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kAllocate, path_);
  if (!verdict.passes()) return fs_->Fail(verdict);
  if (file_) fs_->disk_->WillTruncate(*file_, fs_->disk_->SizeOf(*file_));
  return target()->Allocate(offset, length, options, debug);
}

void FaultWritableFile::SetPreallocationBlockSize(std::size_t size) {
  FSWritableFile::SetPreallocationBlockSize(size);
}

void FaultWritableFile::GetPreallocationStatus(std::size_t* block_size,
                                               std::size_t* last_block) {
  FSWritableFile::GetPreallocationStatus(block_size, last_block);
}

void FaultWritableFile::PrepareWrite(std::size_t offset, std::size_t length,
                                     const IOOptions& options,
                                     IODebugContext* debug) {
  FSWritableFile::PrepareWrite(offset, length, options, debug);
}

FaultRandomRWFile::FaultRandomRWFile(
    FaultFs* fs, std::string path, std::shared_ptr<FaultDisk::File> file,
    std::unique_ptr<rocksdb::FSRandomRWFile> target)
    : FSRandomRWFileOwnerWrapper(std::move(target)),
      fs_(fs),
      path_(std::move(path)),
      file_(std::move(file)) {}

IOStatus FaultRandomRWFile::Write(std::uint64_t offset, const Slice& data,
                                  const IOOptions& options,
                                  IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict =
      fs_->Enter(CallKind::kPwrite, path_, data.size());
  // In place, a part ends where a sector does: Linux copies into each page of
  // the cache all or nothing, also for a process that is killed, and a disk
  // writes a sector as a whole. What the journal checks by one sum stands in
  // one sector for that reason.
  const std::uint64_t cut =
      (offset + verdict.partial.value_or(0)) / kSector * kSector;
  const std::uint64_t size =
      verdict.passes() ? data.size() : std::max(cut, offset) - offset;
  if (size > 0 || verdict.passes()) {
    if (file_) fs_->disk_->WillWrite(*file_, offset, size);
    IOStatus status =
        target()->Write(offset, Slice(data.data(), size), options, debug);
    if (verdict.passes()) return status;
  }
  return fs_->Fail(verdict);
}

IOStatus FaultRandomRWFile::SyncWith(bool metadata, const IOOptions& options,
                                     IODebugContext* debug) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kSync, path_);
  if (!verdict.passes()) {
    if (verdict.drops && file_) fs_->disk_->SyncFailed(*file_);
    return fs_->Fail(verdict);
  }
  if (verdict.lies) return IOStatus::OK();
  IOStatus status = metadata ? target()->Fsync(options, debug)
                             : target()->Sync(options, debug);
  if (status.ok() && file_) fs_->disk_->Synced(*file_);
  return status;
}

IOStatus FaultRandomRWFile::Sync(const IOOptions& options,
                                 IODebugContext* debug) {
  return SyncWith(/*metadata=*/false, options, debug);
}

IOStatus FaultRandomRWFile::Fsync(const IOOptions& options,
                                  IODebugContext* debug) {
  return SyncWith(/*metadata=*/true, options, debug);
}

FaultDirectory::FaultDirectory(FaultFs* fs, std::string path,
                               std::unique_ptr<rocksdb::FSDirectory> target)
    : FSDirectoryWrapper(std::move(target)), fs_(fs), path_(std::move(path)) {}

template <typename Sync>
IOStatus FaultDirectory::SyncBy(Sync sync) {
  absl::MutexLock lock(&fs_->mu_);
  const FaultFs::Verdict verdict = fs_->Enter(CallKind::kSyncDirectory, path_);
  if (!verdict.passes()) return fs_->Fail(verdict);
  if (verdict.lies) return IOStatus::OK();
  IOStatus status = sync();
  if (status.ok() && fs_->follows()) fs_->disk_->DirectorySynced(path_);
  return status;
}

IOStatus FaultDirectory::Fsync(const IOOptions& options,
                               IODebugContext* debug) {
  return SyncBy([&] { return FSDirectoryWrapper::Fsync(options, debug); });
}

IOStatus FaultDirectory::FsyncWithDirOptions(
    const IOOptions& options, IODebugContext* debug,
    const rocksdb::DirFsyncOptions& directory_options) {
  return SyncBy([&] {
    return FSDirectoryWrapper::FsyncWithDirOptions(options, debug,
                                                   directory_options);
  });
}

FaultRandomAccessFile::FaultRandomAccessFile(
    FaultFs* fs, std::string path,
    std::unique_ptr<rocksdb::FSRandomAccessFile> target)
    : FSRandomAccessFileOwnerWrapper(std::move(target)),
      fs_(fs),
      path_(std::move(path)) {}

IOStatus FaultRandomAccessFile::Read(std::uint64_t offset, std::size_t n,
                                     const IOOptions& options, Slice* result,
                                     char* scratch,
                                     IODebugContext* debug) const {
  IOStatus status = fs_->EnterRead(path_);
  if (!status.ok()) return status;
  return FSRandomAccessFileOwnerWrapper::Read(offset, n, options, result,
                                              scratch, debug);
}

FaultSequentialFile::FaultSequentialFile(
    FaultFs* fs, std::string path,
    std::unique_ptr<rocksdb::FSSequentialFile> target)
    : FSSequentialFileOwnerWrapper(std::move(target)),
      fs_(fs),
      path_(std::move(path)) {}

IOStatus FaultSequentialFile::Read(std::size_t n, const IOOptions& options,
                                   Slice* result, char* scratch,
                                   IODebugContext* debug) {
  IOStatus status = fs_->EnterRead(path_);
  if (!status.ok()) return status;
  return FSSequentialFileOwnerWrapper::Read(n, options, result, scratch, debug);
}

}  // namespace ckptree::testing
