// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/full_disk.h"

#include <cstdint>
#include <memory>
#include <string>

#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class FullFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit FullFileSystem(FullDisk* disk)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), disk_(disk) {}
  const char* Name() const override { return "FullFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    if (IsFull() && BaseName(path).starts_with(disk_->refused)) {
      ++disk_->refusals;
      return IOStatus::NoSpace(path, "it is full");
    }
    return FileSystemWrapper::NewWritableFile(path, options, file, dbg);
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options,
                        std::uint64_t* free, IODebugContext* dbg) override {
    if (!IsFull()) {
      return FileSystemWrapper::GetFreeSpace(path, options, free, dbg);
    }
    *free = 0;
    return IOStatus::OK();
  }

 private:
  bool IsFull() {
    return FileSystemWrapper::FileExists(disk_->takes_the_room, IOOptions(),
                                         nullptr)
        .ok();
  }

  FullDisk* const disk_;
};

}  // namespace

std::shared_ptr<void> MakeFullDisk(FullDisk* disk) {
  const std::shared_ptr<rocksdb::FileSystem> made =
      std::make_shared<FullFileSystem>(disk);
  return made;
}

}  // namespace ckptree::kv
