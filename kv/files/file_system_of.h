// SPDX-License-Identifier: Apache-2.0

// RocksDB's file system, for the rooms of kv that work with its types.

#ifndef CKPTREE_KV_FILES_FILE_SYSTEM_OF_H_
#define CKPTREE_KV_FILES_FILE_SYSTEM_OF_H_

#include <memory>

#include "kv/options.h"

namespace rocksdb {
class FileSystem;
}  // namespace rocksdb

namespace ckptree::kv {

// That of `options`, or the real one.
std::shared_ptr<rocksdb::FileSystem> FileSystemOf(const Options& options);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_FILE_SYSTEM_OF_H_
