// SPDX-License-Identifier: Apache-2.0

// How far the index is: a row of kv's own in `records` and in `small`.

#ifndef CKPTREE_KV_ROCKS_MARKER_H_
#define CKPTREE_KV_ROCKS_MARKER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/journal/reader.h"
#include "kv/rocks/instance.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Every batch that is applied puts it in both spaces. RocksDB never cuts a
// batch and writes memory tables in their order, so the files of a space hold
// exactly the commits up to its marker, whatever was lost with the memory.
inline constexpr std::string_view kMarkerKey =
    "\xff"
    "applied";

std::string EncodeMarker(const ChainPoint& point);

// Nothing where there is none; kDataLoss where it cannot be read.
absl::StatusOr<std::optional<ChainPoint>> ReadMarker(const Instance& instance,
                                                     schema::Space space);

// A change of a row to be applied; the views must live until then.
struct IndexChange {
  schema::Space space = schema::Space::kRecords;
  std::string_view key;
  std::optional<std::string_view> value;  // Nothing: it goes.
};

// The most that a row takes in a batch. In 7.8.3 a batch that finds no memory
// while it grows ends the process: it gets its room at once.
std::size_t RowBytesInBatch(std::string_view key, std::string_view value);

// In one batch with both markers, in memory only: the journal has it.
absl::Status ApplyToIndex(const Instance& instance,
                          const std::vector<IndexChange>& changes,
                          const ChainPoint& point);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_MARKER_H_
