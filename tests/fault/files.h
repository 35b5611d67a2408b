// SPDX-License-Identifier: Apache-2.0

// The open files and directories of a FaultFs.

#ifndef CKPTREE_TESTS_FAULT_FILES_H_
#define CKPTREE_TESTS_FAULT_FILES_H_

#include <memory>
#include <string>
#include <utility>

#include "tests/fault/disk.h"
#include "tests/fault/fs.h"

namespace ckptree::testing {

class FaultWritableFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultWritableFile(FaultFs* fs, std::string path,
                    std::shared_ptr<FaultDisk::File> file, std::uint64_t end,
                    std::unique_ptr<rocksdb::FSWritableFile> target);

  rocksdb::IOStatus Append(const rocksdb::Slice& data,
                           const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data,
                           const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info,
                           rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data,
                                     std::uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data,
                                     std::uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo& info,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(std::uint64_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Allocate(std::uint64_t offset, std::uint64_t length,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  // Through Allocate above, so that it is counted.
  void SetPreallocationBlockSize(std::size_t size) override;
  void GetPreallocationStatus(std::size_t* block_size,
                              std::size_t* last_block) override;
  void PrepareWrite(std::size_t offset, std::size_t length,
                    const rocksdb::IOOptions& options,
                    rocksdb::IODebugContext* debug) override;

 private:
  rocksdb::IOStatus SyncWith(bool metadata, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug);

  FaultFs* const fs_;
  const std::string path_;
  const std::shared_ptr<FaultDisk::File> file_;  // Null: not followed.
  std::uint64_t end_;                            // Where Append writes.
};

class FaultRandomRWFile : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  FaultRandomRWFile(FaultFs* fs, std::string path,
                    std::shared_ptr<FaultDisk::File> file,
                    std::unique_ptr<rocksdb::FSRandomRWFile> target);

  rocksdb::IOStatus Write(std::uint64_t offset, const rocksdb::Slice& data,
                          const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;

 private:
  rocksdb::IOStatus SyncWith(bool metadata, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug);

  FaultFs* const fs_;
  const std::string path_;
  const std::shared_ptr<FaultDisk::File> file_;
};

class FaultDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  FaultDirectory(FaultFs* fs, std::string path,
                 std::unique_ptr<rocksdb::FSDirectory> target);

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus FsyncWithDirOptions(
      const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug,
      const rocksdb::DirFsyncOptions& directory_options) override;

 private:
  template <typename Sync>
  rocksdb::IOStatus SyncBy(Sync sync);

  FaultFs* const fs_;
  const std::string path_;
};

class FaultRandomAccessFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultRandomAccessFile(FaultFs* fs, std::string path,
                        std::unique_ptr<rocksdb::FSRandomAccessFile> target);

  rocksdb::IOStatus Read(std::uint64_t offset, std::size_t n,
                         const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override;

 private:
  FaultFs* const fs_;
  const std::string path_;
};

class FaultSequentialFile : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  FaultSequentialFile(FaultFs* fs, std::string path,
                      std::unique_ptr<rocksdb::FSSequentialFile> target);

  rocksdb::IOStatus Read(std::size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) override;

 private:
  FaultFs* const fs_;
  const std::string path_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_FILES_H_
