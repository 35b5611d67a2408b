// SPDX-License-Identifier: Apache-2.0

// The records of a table, found in spite of damage.

#ifndef CKPTREE_KV_ROCKS_RECORD_SCAN_H_
#define CKPTREE_KV_ROCKS_RECORD_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

struct FoundRecord {
  std::string key;
  std::uint64_t offset = 0;  // Of the value, in the file.
  std::uint64_t size = 0;    // Of the value.
  bool deleted = false;
  // The checksum of its block says so. Otherwise key, place and bytes are what
  // stands there, or what the neighbours say should: A DIGEST DECIDES.
  bool proven = false;
  // The bytes, where those in the file are not the ones that were written.
  std::optional<std::string> mended;
};

struct ScanHow {
  // Every block has one record, as in `chunks`.
  bool one_record = false;
  // Do not read values: nothing is proven, nothing is mended.
  bool headers_only = false;
};

// All records, in the order of the file. Blocks are found by the index; where
// that is damaged as each begins where the one before ends; and where that does
// not lead on, by a search for the next one that passes its checksum.
//
// A block that fails its checksum is mended where one bit outside of its values
// explains that, or a key that its neighbours imply. Bytes that the disk does
// not give count as zeros.
std::vector<FoundRecord> FindRecords(rocksdb::FSRandomAccessFile* file,
                                     std::uint64_t file_bytes,
                                     const ScanHow& how);

// Of a file whose keys ascend: without records that contradict the others.
std::vector<FoundRecord> Ascending(std::vector<FoundRecord> records);

// The value of a record; zeros for what the disk does not give.
std::string ReadFound(rocksdb::FSRandomAccessFile* file,
                      const FoundRecord& record);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_RECORD_SCAN_H_
