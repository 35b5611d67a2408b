// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/held_room.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {

absl::Status HeldRoom::Hold(const Options& options, std::uint64_t bytes) {
  LetGo(options);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  rocksdb::IOStatus status = FileSystemOf(options)->NewWritableFile(
      path_, rocksdb::FileOptions(), &file, nullptr);
  const bool made = status.ok();
  if (made) {
    status = file->Allocate(0, bytes, rocksdb::IOOptions(), nullptr);
    file->Close(rocksdb::IOOptions(), nullptr).PermitUncheckedError();
    file.reset();
  }
  if (status.ok()) {
    const absl::MutexLock lock(&mutex_);
    bytes_ = bytes;
    return absl::OkStatus();
  }
  if (made) RemoveFile(options, path_).IgnoreError();
  if (!absl::IsResourceExhausted(ToStatus(status, "holding room"))) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("writing the index may take %d bytes, which are not free "
                      "on the disk of %s",
                      bytes, path_));
}

void HeldRoom::IsFor(std::string_view table) {
  const absl::MutexLock lock(&mutex_);
  if (bytes_ > 0) table_ = table;
}

bool HeldRoom::Take(std::string_view table, std::uint64_t* bytes) {
  const absl::MutexLock lock(&mutex_);
  if (bytes_ == 0 || table_ != table) return false;
  *bytes = std::exchange(bytes_, 0);
  return true;
}

void HeldRoom::LetGo(const Options& options) {
  {
    const absl::MutexLock lock(&mutex_);
    table_.clear();
    if (std::exchange(bytes_, 0) == 0) return;
  }
  RemoveFile(options, path_).IgnoreError();
}

}  // namespace ckptree::kv
