// SPDX-License-Identifier: Apache-2.0

#include "kv/files/file_system_of.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>

#include "kv/options.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

// RocksDB's, but for what ends the process there: 7.8.3 asserts that access(2)
// fails in a few ways only (PosixFileSystem::FileExists), and a file system
// behind a network has others (ESTALE, ENOTCONN).
class RealFileSystem : public rocksdb::FileSystemWrapper {
 public:
  RealFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "ckptree.RealFileSystem"; }

  rocksdb::IOStatus FileExists(const std::string& path,
                               const rocksdb::IOOptions&,
                               rocksdb::IODebugContext*) override {
    if (::access(path.c_str(), F_OK) == 0) return rocksdb::IOStatus::OK();
    switch (const int error = errno) {
      case EACCES:
      case ELOOP:
      case ENAMETOOLONG:
      case ENOENT:
      case ENOTDIR:
        return rocksdb::IOStatus::NotFound();
      default:
        return rocksdb::IOStatus::IOError(
            "looking for " + path, std::generic_category().message(error));
    }
  }
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> FileSystemOf(const Options& options) {
  // Never destroyed: threads of RocksDB may outlive the end of main().
  static const auto& real = *new std::shared_ptr<rocksdb::FileSystem>(
      std::make_shared<RealFileSystem>());
  if (options.file_system == nullptr) return real;
  return std::static_pointer_cast<rocksdb::FileSystem>(options.file_system);
}

}  // namespace ckptree::kv
