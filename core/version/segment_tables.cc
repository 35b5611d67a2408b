// SPDX-License-Identifier: Apache-2.0

#include "core/version/segment_tables.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/array/chunk_grid.h"
#include "core/coding/coded_block.h"
#include "core/version/base_loader.h"
#include "core/version/open_check.h"
#include "core/version/row_scan.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/step_record.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

// A segment whose table is to be made.
struct Wanted {
  schema::SegmentKeyFields fields;
  schema::SegmentRow row;
  // By number of the block, and by where they stand in it.
  std::map<std::uint32_t, std::map<std::uint32_t, schema::TableSlice>> slices =
      {};
  bool complete = false;  // The version that saved it was read.
};

// By the key of the table.
using WantedTables = std::map<std::string, Wanted, std::less<>>;

absl::StatusOr<WantedTables> FindWanted(
    const kv::Database& database, const std::vector<std::string>& unproven) {
  WantedTables wanted;
  for (const std::string& key : unproven) {
    const auto block = schema::DecodeBlockKey(key);
    if (!block.has_value() ||
        schema::SequenceOf(block->n) != schema::kTableSequence) {
      continue;
    }
    const schema::SegmentKeyFields fields = {block->version, block->part,
                                             Space::kChunks,
                                             schema::BuilderOf(block->n)};
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> bytes,
        database.Get(Space::kRecords, schema::SegmentKey(fields)));
    if (!bytes.has_value()) continue;
    auto row = schema::DecodeSegmentRow(*bytes);
    const auto table = database.Read(Space::kChunks, key);
    if (!row.ok() ||
        (table.ok() && schema::DecodeSegmentTable(table->view()).status().ok()))
      continue;
    wanted.emplace(key, Wanted{fields, *std::move(row)});
  }
  return wanted;
}

// Adds what `leaf` has in these segments.
void Add(const BaseLeaf& leaf, std::string_view path, WantedTables* wanted) {
  std::size_t at = 0;
  const auto add = [&](const std::vector<std::int64_t>& start,
                       const std::vector<std::int64_t>& shape) {
    const schema::ChunkRef& ref = leaf.record.chunks[at++];
    if (ref.place != Space::kChunks) return;
    const auto found = wanted->find(schema::SegmentTableKey(
        {ref.version, ref.part, Space::kChunks, schema::BuilderOf(ref.n)}));
    if (found == wanted->end()) return;
    found->second.slices[ref.n].try_emplace(
        ref.offset, schema::TableSlice{base::DigestOf(path), start, shape,
                                       ref.offset, ref.length, ref.digest});
  };
  for (const schema::Box& box : leaf.record.boxes) {
    const ChunkGrid grid(box);
    for (std::int64_t i = 0; i < grid.count() && at < leaf.record.chunks.size();
         ++i) {
      const ChunkGrid::Cell cell = grid.cell(i);
      add(cell.start, cell.shape);
    }
  }
  while (at < leaf.record.chunks.size()) add({}, {});
}

absl::StatusOr<std::vector<schema::StepRecord>> AllVersions(
    const kv::Database& database) {
  std::vector<schema::StepRecord> versions;
  for (const Row row : {Row::kStep, Row::kRemoved}) {
    CKPTREE_RETURN_IF_ERROR(
        ScanRows(database, row, [&](std::string_view, std::string_view value) {
          auto record = schema::DecodeStepRecord(value);
          if (record.ok()) versions.push_back(*std::move(record));
          return absl::OkStatus();
        }));
  }
  std::sort(versions.begin(), versions.end(),
            [](const schema::StepRecord& a, const schema::StepRecord& b) {
              return a.version < b.version;
            });
  return versions;
}

absl::Status CollectSlices(const kv::Database& database, WantedTables* wanted) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::StepRecord> versions,
                           AllVersions(database));
  for (const schema::StepRecord& version : versions) {
    const auto parts = PartsOf(database, version);
    if (!parts.ok()) continue;  // What can be read is told.
    for (const schema::PartRecord& record : *parts) {
      const bool asked =
          std::any_of(wanted->begin(), wanted->end(), [&](const auto& one) {
            const Wanted& table = one.second;
            return !table.complete && table.fields.part == record.part &&
                   table.fields.version <= version.version;
          });
      if (!asked) continue;
      const auto part = LoadPart(database, record);
      if (!part.ok()) continue;
      for (std::size_t i = 0; i < (*part)->leaves.size(); ++i) {
        if ((*part)->leaves[i] == nullptr) continue;
        Add(*(*part)->leaves[i], (*(*part)->entries)[i].path, wanted);
      }
      for (auto& [key, table] : *wanted) {
        table.complete |= table.fields.part == record.part &&
                          table.fields.version == version.version;
      }
    }
  }
  return absl::OkStatus();
}

std::string TableOf(const kv::Database& database, const Wanted& wanted) {
  schema::SegmentTable table;
  for (std::uint32_t i = 0; i < wanted.row.block_count; ++i) {
    schema::TableEntry& entry = table.entries.emplace_back();
    entry.n = wanted.row.first_n + i;
    if (const auto found = wanted.slices.find(entry.n);
        found != wanted.slices.end()) {
      for (const auto& [offset, slice] : found->second) {
        entry.slices.push_back(slice);
      }
      continue;
    }
    const auto block = database.Read(
        Space::kChunks,
        schema::BlockKey(wanted.fields.version, wanted.fields.part, entry.n));
    if (!block.ok()) continue;
    schema::TableSlice& whole = entry.slices.emplace_back();
    whole.length = IsCodedBlock(block->view())
                       ? CodedPayloadBytes(block->view())
                       : static_cast<std::uint32_t>(block->view().size());
  }
  return schema::EncodeSegmentTable(table);
}

}  // namespace

absl::StatusOr<int> MendSegmentTables(
    kv::Database* database, const std::vector<std::string>& unproven) {
  CKPTREE_ASSIGN_OR_RETURN(WantedTables wanted,
                           FindWanted(*database, unproven));
  if (wanted.empty()) return 0;
  CKPTREE_RETURN_IF_ERROR(CollectSlices(*database, &wanted));
  std::map<std::string, std::string, std::less<>> made;
  for (const auto& [key, table] : wanted) made[key] = TableOf(*database, table);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           SortedLiveFiles(*database));
  int mended = 0;
  for (const kv::LiveFile& file : files) {
    const bool has_one =
        file.space == Space::kChunks && file.whole && !file.far &&
        std::any_of(made.begin(), made.end(), [&](const auto& one) {
          return one.first >= file.first_key && one.first <= file.last_key;
        });
    if (!has_one) continue;
    // All else stays where it stands, and so does what is aligned.
    CKPTREE_RETURN_IF_ERROR(
        database
            ->Rewrite(Space::kChunks, {file},
                      [&](std::string_view key, std::string_view,
                          std::string* changed) {
                        const auto found = made.find(key);
                        if (found == made.end()) {
                          return kv::Rewritten::kAsItIs;
                        }
                        *changed = found->second;
                        ++mended;
                        return kv::Rewritten::kChanged;
                      })
            .status());
  }
  return mended;
}

}  // namespace ckptree::internal
