// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/marker.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/big_endian.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/files/status.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace ckptree::kv {

using schema::Space;

std::string EncodeMarker(const ChainPoint& point) {
  std::string bytes;
  base::AppendBig(point.ordinal, &bytes);
  bytes.append(point.hash.view());
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  return bytes;
}

absl::StatusOr<std::optional<ChainPoint>> ReadMarker(const Instance& instance,
                                                     Space space) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                           instance.Get(space, kMarkerKey));
  if (!bytes.has_value()) return std::nullopt;
  ChainPoint point;
  base::BigEndianReader reader(*bytes);
  point.ordinal = reader.Read<std::uint64_t>();
  reader.ReadBytes(point.hash.bytes);
  if (*bytes != EncodeMarker(point)) {
    return absl::DataLossError("the index does not say how far it is");
  }
  return point;
}

std::size_t RowBytesInBatch(std::string_view key, std::string_view value) {
  // Beside the row: a byte and three lengths.
  return 1 + 3 * 5 + key.size() + value.size();
}

absl::Status ApplyToIndex(const Instance& instance,
                          const std::vector<IndexChange>& changes,
                          const ChainPoint& point) {
  std::size_t bytes = 0;
  for (const IndexChange& change : changes) {
    bytes += RowBytesInBatch(change.key, change.value.value_or(""));
  }
  const std::string marker = EncodeMarker(point);
  rocksdb::WriteBatch batch(bytes + 3 * RowBytesInBatch(kMarkerKey, marker));
  rocksdb::Status status;
  for (const IndexChange& change : changes) {
    rocksdb::ColumnFamilyHandle* const family = instance.family(change.space);
    status = change.value.has_value()
                 ? batch.Put(family, change.key, *change.value)
                 : batch.Delete(family, change.key);
    if (!status.ok()) return ToStatus(status, "building the batch");
  }
  for (const Space space : {Space::kRecords, Space::kSmall}) {
    if (status.ok()) {
      status = batch.Put(instance.family(space), kMarkerKey, marker);
    }
  }
  rocksdb::WriteOptions options;
  options.disableWAL = true;
  if (status.ok()) status = instance.db()->Write(options, &batch);
  return ToStatus(status, "applying a commit to the index");
}

}  // namespace ckptree::kv
