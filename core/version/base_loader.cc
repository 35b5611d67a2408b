// SPDX-License-Identifier: Apache-2.0

#include "core/version/base_loader.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/version/block_payload.h"
#include "core/version/leaf_reader.h"
#include "core/version/leaf_share.h"
#include "core/version/open_check.h"
#include "core/version/row_scan.h"
#include "core/version/step_tree.h"
#include "schema/keys.h"
#include "schema/store_record.h"

namespace ckptree::internal {

using schema::Space;

namespace {

// Records in memory at once where all of a part are looked at.
constexpr std::uint32_t kLeavesAtOnce = 32 << 10;

CompactPartBuilder::NewLeaf NewLeafOf(const BaseLeaf& leaf,
                                      const schema::TreeEntry& entry) {
  const schema::LeafRecord& record = leaf.record;
  CompactPartBuilder::NewLeaf added;
  added.at = {0, 1, leaf.place, leaf.version, leaf.source};
  added.value = leaf.value_digest;
  added.since = {record.since_version, record.since_step};
  added.byte_length = record.byte_length;
  added.record_bytes = leaf.encoded_bytes;
  for (const Statistics& statistics : record.statistics) {
    added.nan += statistics.nan;
    added.inf += statistics.inf;
  }
  added.unknown =
      record.statistics.empty() && MayBeNonfinite(entry, record.byte_length);
  const bool whole =
      record.boxes.empty() ||
      (record.boxes.size() == 1 && record.boxes[0].shape == entry.shape);
  if (!IsCompact(record.is_inline, whole, record.byte_length, record.chunks)) {
    added.record = std::make_shared<const schema::LeafRecord>(record);
  } else if (!record.is_inline) {
    added.chunk = &record.chunks[0];
  }
  return added;
}

}  // namespace

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

absl::StatusOr<std::optional<schema::BranchRecord>> ReadBranch(
    const kv::Database& database, const BranchId& branch, std::string* bytes) {
  CKPTREE_ASSIGN_OR_RETURN(
      std::optional<std::string> row,
      database.Get(Space::kRecords, schema::BranchKey(branch.number)));
  if (!row.has_value()) return std::nullopt;
  CKPTREE_ASSIGN_OR_RETURN(schema::BranchRecord record,
                           schema::DecodeBranchRecord(*row));
  if (record.created_ns != branch.created_ns) return std::nullopt;
  if (bytes != nullptr) *bytes = *std::move(row);
  return record;
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
  base->map = part.map.Unpack();
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
  CKPTREE_ASSIGN_OR_RETURN(
      base->leaves, ReadLeaves(database, part.part, base->map, ordinals));
  return base;
}

absl::StatusOr<std::shared_ptr<const CompactPart>> LoadCompactPart(
    const kv::Database& database, const schema::PartRecord& part) {
  CKPTREE_ASSIGN_OR_RETURN(schema::EncodedTree tree,
                           ReadEncodedTree(database, part.tree));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::TreeEntry> entries,
                           schema::DecodeTree(tree));
  const auto of_tree = std::count_if(
      entries.begin(), entries.end(),
      [](const schema::TreeEntry& entry) { return IsLeaf(entry.kind); });
  if (of_tree != std::ptrdiff_t{part.map.size()}) {
    return absl::DataLossError(
        absl::StrFormat("tree %s has %d leaves, its map %d", part.tree.Hex(),
                        of_tree, part.map.size()));
  }
  const schema::LeafMap map = part.map.Unpack();
  CompactPartBuilder builder(nullptr, map.size());
  std::vector<std::shared_ptr<const BaseLeaf>> leaves;
  std::uint32_t first = 0;  // The ordinal of the first of them.
  for (const schema::TreeEntry& entry : entries) {
    if (!IsLeaf(entry.kind)) continue;
    const auto ordinal = static_cast<std::uint32_t>(builder.size());
    if (ordinal == first + leaves.size()) {
      first = ordinal;
      std::vector<std::uint32_t> ordinals(
          std::min(map.size() - first, kLeavesAtOnce));
      std::iota(ordinals.begin(), ordinals.end(), first);
      CKPTREE_ASSIGN_OR_RETURN(leaves,
                               ReadLeaves(database, part.part, map, ordinals));
    }
    builder.Add(NewLeafOf(*leaves[ordinal - first], entry));
  }
  return builder.Finish(
      std::make_shared<const schema::EncodedTree>(std::move(tree)), 0);
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
    CKPTREE_ASSIGN_OR_RETURN(base.parts[number],
                             LoadCompactPart(database, part));
  }
  return base;
}

absl::Status CheckBlocksAreThere(const kv::Database& database,
                                 const BaseState& base) {
  // By key: slices of a pack share one.
  std::set<std::string> chunks, small;
  const auto note = [&](const schema::ChunkRef& ref) {
    (ref.place == Space::kSmall ? small : chunks).insert(ChunkKey(ref));
  };
  for (const auto& [number, part] : base.parts) {
    for (const CompactPart::PackBlock& block : part->blocks()) {
      schema::ChunkRef ref;
      ref.place = block.place;
      ref.version = block.version;
      ref.part = block.part;
      ref.n = block.n;
      note(ref);
    }
    for (const auto& record : part->records()) {
      for (const schema::ChunkRef& ref : record->chunks) note(ref);
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
  ForEach(0, keys.size(), [&](std::size_t i) {
    const auto value = database.Get(Space::kSmall, keys[i]);
    if (value.ok() && value->has_value()) return;
    const absl::MutexLock lock(&mu);
    // A read that fails for another reason is told by the one who needs it.
    if (value.ok()) status.Update(missing(Space::kSmall, keys[i]));
  });
  return status;
}

}  // namespace ckptree::internal
