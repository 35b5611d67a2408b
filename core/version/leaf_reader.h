// SPDX-License-Identifier: Apache-2.0

// Reads the leaf records of a part, many at a time.

#ifndef CKPTREE_CORE_VERSION_LEAF_READER_H_
#define CKPTREE_CORE_VERSION_LEAF_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/version/base_part.h"
#include "kv/database.h"
#include "schema/leaf_map.h"

namespace ckptree::internal {

// The records of the leaves `ordinals` of `map`, in the order given: grouped by
// the version that wrote them, one iterator each over near neighbours.
// kDataLoss naming the record that is missing or damaged. Runs in a TBB arena.
absl::StatusOr<std::vector<std::shared_ptr<const BaseLeaf>>> ReadLeaves(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals);

// The same, of the records alone; `here`: on this thread, which need not be in
// an arena.
absl::StatusOr<std::vector<schema::LeafRecord>> ReadRecords(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals,
    bool here);

// The same, without keeping them: calls `take` for each, with its place among
// `ordinals`, in no order, on this thread, which need not be in an arena.
absl::Status VisitRecords(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals,
    absl::FunctionRef<void(std::size_t at, const schema::LeafRecord& record)>
        take);

// Where a record stands.
struct LeafPlace {
  std::uint16_t part = 0;
  schema::MapRun run;
};

// Records that need not be near each other, by key, on this thread: calls
// `take` for each that can be read, with its place among `leaves`, in no order.
// It may take what is in the record, whose memory is that of the next one.
void ReadEach(
    const kv::Database& database, std::span<const LeafPlace> leaves,
    absl::FunctionRef<void(std::size_t at, schema::LeafRecord* record)> take);

// One record by key.
absl::StatusOr<schema::LeafRecord> ReadLeaf(const kv::Database& database,
                                            std::uint16_t part,
                                            const schema::MapRun& run);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_LEAF_READER_H_
