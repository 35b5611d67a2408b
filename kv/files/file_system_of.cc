// SPDX-License-Identifier: Apache-2.0

#include "kv/files/file_system_of.h"

#include <memory>

#include "kv/options.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {

std::shared_ptr<rocksdb::FileSystem> FileSystemOf(const Options& options) {
  if (options.file_system == nullptr) return rocksdb::FileSystem::Default();
  return std::static_pointer_cast<rocksdb::FileSystem>(options.file_system);
}

}  // namespace ckptree::kv
