// SPDX-License-Identifier: Apache-2.0

// Tables that RocksDB takes in are read before, and it gets what was read.

#ifndef CKPTREE_KV_ROCKS_KEPT_READS_H_
#define CKPTREE_KV_ROCKS_KEPT_READS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/rocks/read_pieces.h"

namespace rocksdb {
class Env;
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// What a table has at its ends, and whose it says that it is.
struct TableEnds {
  std::string family;  // A SegmentWriter does not know it.
  std::string first_key;
  std::string first_value;
  std::string last_key;
};
// Of the table at `path`, by a guard below `env`. Errors of the disk; kDataLoss
// where what was read is no whole table.
absl::StatusOr<TableEnds> ReadTableEnds(rocksdb::Env* env,
                                        const std::string& path);

// RocksDB 7.8.3 asks a table that it ingests or imports for its first and its
// last key, and does not look whether the disk gave them (GetIngestedFileInfo
// of both jobs): after a read that failed, or whose checksum is wrong, it
// adopts a table that no key leads to, or ends the process. So the ends of each
// table are read first (ReadTableEnds), and compared, and while an object of
// this class lives its thread gives RocksDB the bytes of those reads and asks
// the disk for nothing twice.
//
// Works on files that a guard (kv/rocks/guard.h) opens. Confined to one thread,
// one at a time. Holds the first and last block of each table, and its index.
class KeptReads {
 public:
  KeptReads();
  ~KeptReads();
  KeptReads(const KeptReads&) = delete;
  KeptReads& operator=(const KeptReads&) = delete;

  // Of this thread; null: there is none.
  static KeptReads* Current();

  // `file`, whose reads are kept.
  std::unique_ptr<rocksdb::FSRandomAccessFile> Keeping(
      std::unique_ptr<rocksdb::FSRandomAccessFile> file,
      const std::string& path);

 private:
  class File;

  bool Find(const std::string& path, std::uint64_t offset, std::size_t bytes,
            char* to) const;

  std::map<std::string, ReadPieces> pieces_;  // By the path of their file.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_KEPT_READS_H_
