// SPDX-License-Identifier: Apache-2.0

// A table that RocksDB has just written, opened for its first look.

#ifndef CKPTREE_KV_ROCKS_FRESH_TABLE_H_
#define CKPTREE_KV_ROCKS_FRESH_TABLE_H_

#include <memory>
#include <string>

namespace rocksdb {
class FSRandomAccessFile;
class FileSystem;
class IOStatus;
struct FileOptions;
struct IODebugContext;
}  // namespace rocksdb

namespace ckptree::kv {

// Opens the table at `path`. RocksDB 7.8.3 opens each table that a flush wrote
// before it counts (BuildTable), and takes one read that fails, or gives a
// flipped bit, for a disk that is lost: it removes the table, and no flush
// follows, so the database is at its end. So what it reads at an open (footer,
// metaindex, properties, index) is read here first and compared with the
// checksums, up to three times, past the page cache as far as the system lets
// it, and RocksDB gets those bytes. They are held until it has read the index,
// its last.
//
// Where no attempt is well RocksDB is left to read the file, and to say why it
// cannot.
rocksdb::IOStatus OpenFreshTable(
    rocksdb::FileSystem* files, const std::string& path,
    const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
    rocksdb::IODebugContext* debug);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_FRESH_TABLE_H_
