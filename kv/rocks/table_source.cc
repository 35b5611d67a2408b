// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_source.h"

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kTableCopyBytes = std::size_t{1} << 20;

absl::Status Append(rocksdb::FSSequentialFile* in, rocksdb::FSWritableFile* out,
                    std::string* buffer) {
  const rocksdb::IOOptions io;
  for (;;) {
    rocksdb::Slice piece;
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(in->Read(buffer->size(), io, &piece, buffer->data(), nullptr),
                 "reading"));
    if (piece.empty()) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(out->Append(piece, io, nullptr), "writing"));
  }
}

}  // namespace

absl::Status CopyFile(const Options& options, const std::string& from,
                      const std::string& to) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSSequentialFile> in;
  std::unique_ptr<rocksdb::FSWritableFile> out;
  CKPTREE_RETURN_IF_ERROR(ToStatus(
      fs->NewSequentialFile(from, rocksdb::FileOptions(), &in, nullptr),
      "opening " + from));
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(fs->NewWritableFile(to, rocksdb::FileOptions(), &out, nullptr),
               "creating " + to));
  std::string buffer(kTableCopyBytes, '\0');
  absl::Status copied = Append(in.get(), out.get(), &buffer);
  if (copied.ok()) {
    copied = ToStatus(out->Sync(rocksdb::IOOptions(), nullptr), "syncing");
  }
  const rocksdb::IOStatus closed = out->Close(rocksdb::IOOptions(), nullptr);
  if (!copied.ok()) {
    return absl::Status(
        copied.code(),
        absl::StrFormat("copying %s to %s: %s", from, to, copied.message()));
  }
  return ToStatus(closed, "closing " + to);
}

absl::Status LinkOrCopy(const Options& options, const std::string& from,
                        const std::string& to) {
  if (FileSystemOf(options)
          ->LinkFile(from, to, rocksdb::IOOptions(), nullptr)
          .ok()) {
    return absl::OkStatus();
  }
  return CopyFile(options, from, to);
}

}  // namespace ckptree::kv
