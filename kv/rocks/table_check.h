// SPDX-License-Identifier: Apache-2.0

// A check of tables that RocksDB leaves out.

#ifndef CKPTREE_KV_ROCKS_TABLE_CHECK_H_
#define CKPTREE_KV_ROCKS_TABLE_CHECK_H_

#include <cstdint>

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// False where the checksum of the properties block of the table `file` is not
// that of its bytes. RocksDB 7.8 (table/meta_blocks.cc) parses that block
// before it compares, and a flipped bit of its last byte ends the process in an
// assertion. All else is compared by RocksDB itself and is not looked at: true
// for a file that is no table, and for a table with other checksums than ours.
bool TablePropertiesAreWhole(rocksdb::FSRandomAccessFile* file,
                             std::uint64_t file_bytes);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_CHECK_H_
