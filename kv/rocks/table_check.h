// SPDX-License-Identifier: Apache-2.0

// A check of tables that RocksDB leaves out.

#ifndef CKPTREE_KV_ROCKS_TABLE_CHECK_H_
#define CKPTREE_KV_ROCKS_TABLE_CHECK_H_

#include <cstdint>

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// What RocksDB 7.8 meets when it opens a table.
enum class Opening {
  kWhole,  // But for the index, which is not looked at.
  kTold,   // RocksDB itself says what is wrong, or this is no table of ours.
  kHarmful,
};

// kHarmful: RocksDB would end the process when it opens the table `file`, or
// leave it without properties: it parses the block of properties
// (table/meta_blocks.cc) before it compares its checksum, and where a checksum
// is right it asserts that entries lie within their block. So that block must
// be whole, and it and the metaindex must be sound. kTold: a file that is no
// table, a table with other checksums than ours, other damage, and where the
// disk gives nothing.
//
// A forger can write other blocks with wrong entries and a right checksum, or
// properties that say how the index is to be read: they are not seen here.
Opening CheckOpening(rocksdb::FSRandomAccessFile* file,
                     std::uint64_t file_bytes);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_CHECK_H_
