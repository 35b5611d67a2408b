// SPDX-License-Identifier: Apache-2.0

#include "kv/file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/errno_status.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/options.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

absl::Status Context(const IOStatus& status, std::string_view action,
                     const std::string& path) {
  if (status.ok()) return absl::OkStatus();
  return ToStatus(status, absl::StrFormat("%s %s", action, path));
}

}  // namespace

bool AllZero(std::string_view bytes) {
  return bytes.empty() ||
         (bytes[0] == '\0' &&
          std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

absl::Status WriteFile(const Options& options, const std::string& path,
                       std::string_view content) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  IOStatus status = fs->NewWritableFile(path, FileOptions(), &file, nullptr);
  if (status.ok()) status = file->Append(content, IOOptions(), nullptr);
  if (status.ok()) status = file->Sync(IOOptions(), nullptr);
  if (file != nullptr) {
    const IOStatus closed = file->Close(IOOptions(), nullptr);
    if (status.ok()) status = closed;
  }
  return Context(status, "writing", path);
}

absl::StatusOr<std::string> ReadFile(const Options& options,
                                     const std::string& path,
                                     std::size_t max_bytes,
                                     std::size_t max_zeros) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  CKPTREE_RETURN_IF_ERROR(
      Context(fs->NewSequentialFile(path, FileOptions(), &file, nullptr),
              "opening", path));
  std::string content;
  std::size_t zeros = 0;  // Behind `content`.
  std::string buffer(std::min(max_bytes, kPieceBytes), '\0');
  while (content.size() + zeros < max_bytes) {
    rocksdb::Slice slice;
    CKPTREE_RETURN_IF_ERROR(Context(
        file->Read(std::min(max_bytes - content.size() - zeros, buffer.size()),
                   IOOptions(), &slice, buffer.data(), nullptr),
        "reading", path));
    if (slice.empty()) break;
    if (AllZero({slice.data(), slice.size()})) {
      zeros += slice.size();
      continue;
    }
    content.append(std::exchange(zeros, 0), '\0');
    content.append(slice.data(), slice.size());
  }
  content.append(std::min(zeros, max_zeros), '\0');
  return content;
}

absl::StatusOr<std::string> ReadFileFrom(const Options& options,
                                         const std::string& path,
                                         std::uint64_t offset,
                                         std::size_t max_bytes) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  CKPTREE_RETURN_IF_ERROR(
      Context(fs->NewRandomAccessFile(path, FileOptions(), &file, nullptr),
              "opening", path));
  std::string content;
  std::string buffer(std::min(max_bytes, std::size_t{64} << 10), '\0');
  while (content.size() < max_bytes) {
    rocksdb::Slice slice;
    CKPTREE_RETURN_IF_ERROR(
        Context(file->Read(offset + content.size(),
                           std::min(max_bytes - content.size(), buffer.size()),
                           IOOptions(), &slice, buffer.data(), nullptr),
                "reading", path));
    if (slice.empty()) break;
    content.append(slice.data(), slice.size());
  }
  return content;
}

absl::Status AppendToFile(const Options& options, const std::string& path,
                          std::string_view content) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  IOStatus status = fs->ReopenWritableFile(path, FileOptions(), &file, nullptr);
  if (status.ok()) status = file->Append(content, IOOptions(), nullptr);
  if (file != nullptr) {
    const IOStatus closed = file->Close(IOOptions(), nullptr);
    if (status.ok()) status = closed;
  }
  return Context(status, "writing", path);
}

absl::Status CutFile(const Options& options, const std::string& path,
                     std::uint64_t size) {
  const auto fs = FileSystemOf(options);
  const IOStatus there = fs->FileExists(path, IOOptions(), nullptr);
  if (there.IsNotFound()) return absl::OkStatus();
  std::unique_ptr<rocksdb::FSWritableFile> file;
  IOStatus status = fs->ReopenWritableFile(path, FileOptions(), &file, nullptr);
  if (status.ok()) status = file->Truncate(size, IOOptions(), nullptr);
  if (file != nullptr) {
    const IOStatus closed = file->Close(IOOptions(), nullptr);
    if (status.ok()) status = closed;
  }
  return Context(status, "cutting", path);
}

absl::StatusOr<std::uint64_t> FileSize(const Options& options,
                                       const std::string& path) {
  std::uint64_t size = 0;
  CKPTREE_RETURN_IF_ERROR(Context(
      FileSystemOf(options)->GetFileSize(path, IOOptions(), &size, nullptr),
      "measuring", path));
  return size;
}

absl::Status RenameFile(const Options& options, const std::string& from,
                        const std::string& to) {
  return Context(
      FileSystemOf(options)->RenameFile(from, to, IOOptions(), nullptr),
      "renaming", from);
}

absl::Status ExchangeFiles(const Options& options, const std::string& a,
                           const std::string& b) {
  if (options.file_system != nullptr) {
    return absl::UnimplementedError("a file system of the caller's");
  }
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) ==
      0) {
    return absl::OkStatus();
  }
  const int error = errno;
  const std::string context = absl::StrFormat("exchanging %s and %s", a, b);
  if (error == EINVAL || error == ENOSYS || error == EOPNOTSUPP) {
    return absl::UnimplementedError(context);
  }
  return ErrnoStatus(error, context);
}

absl::Status RemoveFile(const Options& options, const std::string& path) {
  const absl::Status status =
      Context(FileSystemOf(options)->DeleteFile(path, IOOptions(), nullptr),
              "removing", path);
  if (absl::IsNotFound(status)) return absl::OkStatus();
  return status;
}

absl::Status MakeDirectory(const Options& options, const std::string& path) {
  absl::Status made = Context(
      FileSystemOf(options)->CreateDirIfMissing(path, IOOptions(), nullptr),
      "creating directory", path);
  if (made.ok()) return made;
  std::error_code error;
  const std::filesystem::path target =
      std::filesystem::read_symlink(path, error);
  if (error || std::filesystem::exists(path, error)) return made;
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is a link to %s, which is not there: make that folder, or remove the "
      "link",
      path, target.string()));
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const Options& options, const std::string& path) {
  std::vector<std::string> names;
  const absl::Status listed = Context(
      FileSystemOf(options)->GetChildren(path, IOOptions(), &names, nullptr),
      "listing", path);
  if (absl::IsNotFound(listed)) return std::vector<std::string>();
  CKPTREE_RETURN_IF_ERROR(listed);
  std::erase_if(names, [](const std::string& name) {
    return name == "." || name == "..";
  });
  // The order of a directory is chance; what is done with it is not.
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const Options& options, const std::string& path) {
  const auto fs = FileSystemOf(options);
  const IOStatus there = fs->FileExists(path, IOOptions(), nullptr);
  if (there.IsNotFound() || there.IsPathNotFound()) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, path));
  for (const std::string& name : names) {
    const std::string child = path + "/" + name;
    bool directory = false;
    CKPTREE_RETURN_IF_ERROR(
        Context(fs->IsDirectory(child, IOOptions(), &directory, nullptr),
                "looking at", child));
    CKPTREE_RETURN_IF_ERROR(directory ? RemoveTree(options, child)
                                      : RemoveFile(options, child));
  }
  return Context(fs->DeleteDir(path, IOOptions(), nullptr), "removing", path);
}

absl::Status SyncFile(const Options& options, const std::string& path) {
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
  IOStatus status = FileSystemOf(options)->NewRandomRWFile(path, FileOptions(),
                                                           &file, nullptr);
  if (status.IsNotFound() || status.IsPathNotFound()) return absl::OkStatus();
  if (status.ok()) status = file->Sync(IOOptions(), nullptr);
  if (file != nullptr) {
    const IOStatus closed = file->Close(IOOptions(), nullptr);
    if (status.ok()) status = closed;
  }
  return Context(status, "syncing", path);
}

absl::Status SyncDirectory(const Options& options, const std::string& path) {
  std::unique_ptr<rocksdb::FSDirectory> directory;
  IOStatus status = FileSystemOf(options)->NewDirectory(path, IOOptions(),
                                                        &directory, nullptr);
  if (status.ok()) status = directory->Fsync(IOOptions(), nullptr);
  return Context(status, "syncing directory", path);
}

}  // namespace ckptree::kv
