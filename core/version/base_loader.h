// SPDX-License-Identifier: Apache-2.0

// Reads versions into memory: maps, trees and leaf records, or what a save is
// compared with.

#ifndef CKPTREE_CORE_VERSION_BASE_LOADER_H_
#define CKPTREE_CORE_VERSION_BASE_LOADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/version/base_part.h"
#include "core/version/catalog.h"
#include "core/version/compact_part.h"
#include "kv/database.h"
#include "schema/step_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// The tip of a branch; 0 where its next save is full.
absl::StatusOr<std::uint64_t> ReadTip(const kv::Database& database,
                                      std::uint32_t branch);

// The row of a branch; nothing where it was dropped, though another branch may
// have its number by now. `bytes`, where it is not null: the row as it stands.
absl::StatusOr<std::optional<schema::BranchRecord>> ReadBranch(
    const kv::Database& database, const BranchId& branch,
    std::string* bytes = nullptr);

// The record of a version that is not collected: that of its step, or of the
// removed one. kDataLoss where there is neither.
absl::StatusOr<schema::StepRecord> ReadVersion(const kv::Database& database,
                                               std::uint64_t version);

// Its parts, from the record or its StepMeta.
absl::StatusOr<std::vector<schema::PartRecord>> PartsOf(
    const kv::Database& database, const schema::StepRecord& record);

// One part without its leaf records; the entries are those of `known` (may be
// null) where its tree is the same.
absl::StatusOr<std::shared_ptr<BasePart>> LoadPartEntries(
    const kv::Database& database, const schema::PartRecord& part,
    const BasePart* known);

// One part, all its leaf records. Runs in a TBB arena.
absl::StatusOr<std::shared_ptr<const BasePart>> LoadPart(
    const kv::Database& database, const schema::PartRecord& part);

// The same in columns; it never has all records at once. Runs in a TBB arena.
absl::StatusOr<std::shared_ptr<const CompactPart>> LoadCompactPart(
    const kv::Database& database, const schema::PartRecord& part);

// The tip of `branch`, and which parts it has; none of them is read.
absl::StatusOr<BaseState> LoadBaseTable(const kv::Database& database,
                                        std::uint32_t branch);

// What the next save of `branch` is compared with. Runs in a TBB arena.
absl::StatusOr<BaseState> LoadBase(const kv::Database& database,
                                   std::uint32_t branch);

// kDataLoss names a block that a leaf of `base` refers to and that is not
// there: a save that shared it could not be read. What is in the blocks is not
// looked at. Runs in a TBB arena.
absl::Status CheckBlocksAreThere(const kv::Database& database,
                                 const BaseState& base);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_BASE_LOADER_H_
