// SPDX-License-Identifier: Apache-2.0

// What the blocks of a table say of where they stand.

#ifndef CKPTREE_KV_ROCKS_TABLE_HEADS_H_
#define CKPTREE_KV_ROCKS_TABLE_HEADS_H_

#include <cstdint>

#include "kv/rocks/table_index.h"

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// What the index of a damaged table of `chunks` would be.
TableIndex IndexByHeads(rocksdb::FSRandomAccessFile* file,
                        std::uint64_t file_bytes);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_HEADS_H_
