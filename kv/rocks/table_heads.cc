// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_heads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kv/rocks/record_scan.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_parts.h"

namespace ckptree::kv {

TableIndex IndexByHeads(rocksdb::FSRandomAccessFile* file,
                        std::uint64_t file_bytes) {
  ScanHow how;
  how.one_record = true;
  how.headers_only = true;
  std::vector<IndexEntry> index;
  for (FoundRecord& record : FindRecords(file, file_bytes, how)) {
    const std::uint64_t before = BytesBefore(record.key.size(), record.size);
    index.push_back(
        {std::move(record.key),
         {record.offset - before, before + record.size + kRestartsBytes}});
  }
  std::sort(index.begin(), index.end(),
            [](const IndexEntry& a, const IndexEntry& b) {
              return a.last_key < b.last_key;
            });
  return TableIndex::Of(index);
}

}  // namespace ckptree::kv
