// SPDX-License-Identifier: Apache-2.0

// Reads that fail are tried once more: a cable, a controller or a network may
// fail once, and the file is well.

#ifndef CKPTREE_KV_ROCKS_SECOND_READ_H_
#define CKPTREE_KV_ROCKS_SECOND_READ_H_

#include <memory>
#include <string>

namespace rocksdb {
class FileSystem;
class FSRandomAccessFile;
class FSSequentialFile;
class IOStatus;
struct FileOptions;
}  // namespace rocksdb

namespace ckptree::kv {

// Whether what failed may be well the next time: not what is missing, nor what
// is forbidden.
bool MayBeWellAgain(const rocksdb::IOStatus& status);

// `read` gives an IOStatus, and is called again where that may be another.
template <typename ReadFn>
auto WithSecondTry(const ReadFn& read) {
  auto status = read();
  if (MayBeWellAgain(status)) status = read();
  return status;
}

// `file` with a second try of each read that fails. What fails twice is as
// `file` says it.
std::unique_ptr<rocksdb::FSRandomAccessFile> WithSecondReads(
    std::unique_ptr<rocksdb::FSRandomAccessFile> file);

// The same of one that is read from its start: for the second try it is opened
// again in `file_system`, which outlives it.
std::unique_ptr<rocksdb::FSSequentialFile> WithSecondReads(
    std::unique_ptr<rocksdb::FSSequentialFile> file,
    rocksdb::FileSystem* file_system, std::string path,
    const rocksdb::FileOptions& options);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SECOND_READ_H_
