// SPDX-License-Identifier: Apache-2.0

#include "core/version/base_loader.h"

#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/version/block_payload.h"
#include "core/version/leaf_reader.h"
#include "core/version/open_check.h"
#include "core/version/row_scan.h"
#include "core/version/step_tree.h"
#include "schema/keys.h"
#include "schema/store_record.h"
#include "tbb/parallel_for.h"

namespace ckptree::internal {

using schema::Space;

absl::StatusOr<std::uint64_t> ReadTip(const kv::Database& database,
                                      std::uint32_t branch) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> row,
      database.Get(Space::kRecords, schema::BranchKey(branch)));
  if (!row.has_value()) {
    return absl::DataLossError(
        absl::StrFormat("the row of branch %d is missing", branch));
  }
  CKPTREE_ASSIGN_OR_RETURN(const schema::BranchRecord record,
                           schema::DecodeBranchRecord(*row));
  return record.tip;
}

absl::StatusOr<schema::StepRecord> ReadVersion(const kv::Database& database,
                                               std::uint64_t version) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> removed,
      database.Get(Space::kRecords, schema::RemovedKey(version)));
  if (removed.has_value()) return schema::DecodeStepRecord(*removed);
  std::optional<schema::StepRecord> found;
  const absl::Status scanned =
      ScanRows(database, schema::Row::kStep,
               [&](std::string_view, std::string_view value) {
                 if (found.has_value()) return absl::OkStatus();
                 absl::StatusOr<schema::StepRecord> record =
                     schema::DecodeStepRecord(value);
                 if (record.ok() && record->version == version) {
                   found = *std::move(record);
                 }
                 return absl::OkStatus();
               });
  if (found.has_value()) return *std::move(found);
  CKPTREE_RETURN_IF_ERROR(scanned);
  return absl::DataLossError(absl::StrFormat(
      "version %d has neither a step nor a removed row", version));
}

absl::StatusOr<std::vector<schema::PartRecord>> PartsOf(
    const kv::Database& database, const schema::StepRecord& record) {
  if (!record.parts_in_meta) return record.parts;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> bytes,
      database.Get(Space::kRecords, schema::StepMetaKey(record.version)));
  if (!bytes.has_value()) {
    return absl::DataLossError(absl::StrFormat(
        "the part table of version %d is missing", record.version));
  }
  CKPTREE_ASSIGN_OR_RETURN(schema::StepMeta meta,
                           schema::DecodeStepMeta(*bytes));
  return std::move(meta.parts);
}

absl::StatusOr<std::shared_ptr<BasePart>> LoadPartEntries(
    const kv::Database& database, const schema::PartRecord& part,
    const BasePart* known) {
  auto base = std::make_shared<BasePart>();
  base->tree = part.tree;
  base->map = part.map;
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const StepTree> tree,
                           StepTree::Open(database, part.tree));
  if (tree->leaf_count() != part.map.size()) {
    return absl::DataLossError(
        absl::StrFormat("tree %s has %d leaves, its map %d", part.tree.Hex(),
                        tree->leaf_count(), part.map.size()));
  }
  if (known != nullptr && known->tree == part.tree) {
    base->entries = known->entries;
    return base;
  }
  std::vector<schema::TreeEntry> entries;
  entries.reserve(tree->entry_count());
  CKPTREE_RETURN_IF_ERROR(
      tree->ForEach("", [&entries](const StepTree::Entry& entry) {
        entries.push_back(*entry.entry);
      }));
  base->entries = std::make_shared<const std::vector<schema::TreeEntry>>(
      std::move(entries));
  return base;
}

absl::StatusOr<std::shared_ptr<const BasePart>> LoadPart(
    const kv::Database& database, const schema::PartRecord& part) {
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<BasePart> base,
                           LoadPartEntries(database, part, nullptr));
  std::vector<std::uint32_t> ordinals(part.map.size());
  std::iota(ordinals.begin(), ordinals.end(), 0u);
  CKPTREE_ASSIGN_OR_RETURN(base->leaves,
                           ReadLeaves(database, part.part, part.map, ordinals));
  return base;
}

absl::StatusOr<BaseState> LoadBaseTable(const kv::Database& database,
                                        std::uint32_t branch) {
  BaseState base;
  CKPTREE_ASSIGN_OR_RETURN(base.version, ReadTip(database, branch));
  if (base.version == 0) return base;
  CKPTREE_ASSIGN_OR_RETURN(const schema::StepRecord record,
                           ReadVersion(database, base.version));
  CKPTREE_ASSIGN_OR_RETURN(std::vector<schema::PartRecord> parts,
                           PartsOf(database, record));
  for (schema::PartRecord& part : parts) {
    const std::uint16_t number = part.part;
    base.table.emplace(number, std::move(part));
  }
  return base;
}

absl::StatusOr<BaseState> LoadBase(const kv::Database& database,
                                   std::uint32_t branch) {
  CKPTREE_ASSIGN_OR_RETURN(BaseState base, LoadBaseTable(database, branch));
  for (const auto& [number, part] : base.table) {
    CKPTREE_ASSIGN_OR_RETURN(base.parts[number], LoadPart(database, part));
  }
  return base;
}

absl::Status CheckBlocksAreThere(const kv::Database& database,
                                 const BaseState& base) {
  // By key: slices of a pack share one.
  std::set<std::string> chunks, small;
  for (const auto& [number, part] : base.parts) {
    for (const auto& leaf : part->leaves) {
      for (const schema::ChunkRef& ref : leaf->record.chunks) {
        (ref.place == Space::kSmall ? small : chunks).insert(ChunkKey(ref));
      }
    }
  }
  const auto missing = [](Space space, std::string_view key) {
    return absl::DataLossError(schema::DescribeKey(space, key) + " is missing");
  };
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  for (const std::string& key : chunks) {
    const kv::LiveFile* const file =
        FileOfKeys(files, Space::kChunks, key, key);
    if (file == nullptr || !file->whole) return missing(Space::kChunks, key);
  }
  const std::vector<std::string> keys(small.begin(), small.end());
  absl::Mutex mu;
  absl::Status status;
  tbb::parallel_for(std::size_t{0}, keys.size(), [&](std::size_t i) {
    const auto value = database.Get(Space::kSmall, keys[i]);
    if (value.ok() && value->has_value()) return;
    const absl::MutexLock lock(&mu);
    // A read that fails for another reason is told by the one who needs it.
    if (value.ok()) status.Update(missing(Space::kSmall, keys[i]));
  });
  return status;
}

}  // namespace ckptree::internal
