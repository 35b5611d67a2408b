// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/contested_disk.h"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr std::uint64_t kFree = std::uint64_t{1} << 30;

class ContestedFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  ContestedFile(std::unique_ptr<rocksdb::FSWritableFile> file, bool has_room,
                ContestedDisk* disk)
      : FSWritableFileOwnerWrapper(std::move(file)),
        disk_(disk),
        has_room_(has_room) {}

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    if (IOStatus full = Room(); !full.ok()) return full;
    return FSWritableFileOwnerWrapper::Append(data, options, dbg);
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification,
                  IODebugContext* dbg) override {
    if (IOStatus full = Room(); !full.ok()) return full;
    return FSWritableFileOwnerWrapper::Append(data, options, verification, dbg);
  }
  IOStatus Allocate(std::uint64_t offset, std::uint64_t bytes,
                    const IOOptions& options, IODebugContext* dbg) override {
    if (!disk_->can_hold) return IOStatus::NotSupported("no fallocate here");
    if (IOStatus full = Room(); !full.ok()) return full;
    IOStatus status =
        FSWritableFileOwnerWrapper::Allocate(offset, bytes, options, dbg);
    has_room_ = true;
    if (disk_->taken == ContestedDisk::Taken::kBehindTheHold) {
      disk_->full = true;
      ++disk_->times_taken;
    }
    return status;
  }

 private:
  IOStatus Room() {
    if (has_room_ || !disk_->full) return IOStatus::OK();
    ++disk_->refusals;
    return disk_->by_quota
               ? IOStatus::IOError("a file",
                                   std::generic_category().message(EDQUOT))
               : IOStatus::NoSpace("it is full");
  }

  ContestedDisk* const disk_;
  bool has_room_;
};

class ContestedFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit ContestedFileSystem(ContestedDisk* disk)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), disk_(disk) {}
  const char* Name() const override { return "ContestedFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    return Opened(FileSystemWrapper::NewWritableFile(path, options, file, dbg),
                  path, /*has_room=*/false, file);
  }
  // Of a file that exists: it has the room that it was given.
  IOStatus ReopenWritableFile(const std::string& path,
                              const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    return Opened(
        FileSystemWrapper::ReopenWritableFile(path, options, file, dbg), path,
        /*has_room=*/true, file);
  }
  IOStatus GetFreeSpace(const std::string&, const IOOptions&,
                        std::uint64_t* free, IODebugContext*) override {
    *free = disk_->full && !disk_->by_quota ? 0 : kFree;
    if (disk_->taken == ContestedDisk::Taken::kBehindTheLook) {
      disk_->full = true;
      ++disk_->times_taken;
    }
    return IOStatus::OK();
  }

 private:
  IOStatus Opened(IOStatus status, const std::string& path, bool has_room,
                  std::unique_ptr<rocksdb::FSWritableFile>* file) {
    if (status.ok() && (absl::EndsWith(path, ".sst") ||
                        absl::StrContains(path, "/staging/"))) {
      *file =
          std::make_unique<ContestedFile>(std::move(*file), has_room, disk_);
    }
    return status;
  }

  ContestedDisk* const disk_;
};

}  // namespace

std::shared_ptr<void> MakeContestedDisk(ContestedDisk* disk) {
  const std::shared_ptr<rocksdb::FileSystem> made =
      std::make_shared<ContestedFileSystem>(disk);
  return made;
}

}  // namespace ckptree::kv
