// SPDX-License-Identifier: Apache-2.0

#include "core/verify/reference_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

using schema::BlockKind;
using schema::Row;
using schema::Space;

// The numbers of the blocks that a segment was saved with.
absl::StatusOr<std::vector<std::uint32_t>> NumbersOf(
    const kv::Database& database, const schema::SegmentKeyFields& key,
    const schema::SegmentRow& row) {
  std::vector<std::uint32_t> numbers;
  if (key.space == Space::kChunks) {
    for (std::uint32_t i = 0; i < row.block_count; ++i) {
      numbers.push_back(row.first_n + i);
    }
    return numbers;
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const kv::Value bytes,
      database.Read(key.space, schema::SegmentTableKey(key)));
  CKPTREE_ASSIGN_OR_RETURN(const schema::SegmentTable table,
                           schema::DecodeSegmentTable(bytes.view()));
  for (const schema::TableEntry& entry : table.entries) {
    numbers.push_back(entry.n);
  }
  return numbers;
}

}  // namespace

absl::Status CheckReferences(const kv::Database& database, Moment* moment,
                             const std::set<BlockId>& blocks,
                             const std::set<base::Digest>& trees,
                             Damage* damage) {
  std::uint64_t unused_blocks = 0, unused_trees = 0;
  const schema::KeyRange segments = schema::AllRows(Row::kSegment);
  kv::Iterator& rows = moment->rows;
  for (rows.Seek(segments.begin); rows.Valid() && rows.key() < segments.end;
       rows.Next()) {
    const auto key = schema::DecodeSegmentKey(rows.key());
    const auto row = schema::DecodeSegmentRow(rows.value());
    if (!key.has_value() || !row.ok()) continue;  // CheckRows reports it.
    const auto numbers = NumbersOf(database, *key, *row);
    if (!numbers.ok()) continue;  // SegmentFiles reports it.
    for (const std::uint32_t n : *numbers) {
      const BlockId id = {
          key->part,
          {key->space == Space::kChunks ? BlockKind::kChunk
                                        : BlockKind::kLeafRecord,
           key->space, key->version, n}};
      const bool dead = row->IsDead(schema::SequenceOf(n));
      const bool used = blocks.contains(id);
      if (dead && used) {
        damage->AddBlock(id, absl::StrFormat("%s: block %d is marked dead",
                                             schema::DescribeKey(
                                                 Space::kRecords, rows.key()),
                                             schema::SequenceOf(n)));
      }
      unused_blocks += !dead && !used ? 1 : 0;
    }
  }
  CKPTREE_RETURN_IF_ERROR(rows.status());

  kv::Iterator& small = moment->small;
  for (; small.Valid(); small.Next()) {
    const auto key = schema::DecodeSmallKey(small.key());
    if (!key.has_value() || key->kind == BlockKind::kHeader) continue;
    unused_blocks +=
        blocks.contains(
            {key->part, {key->kind, Space::kSmall, key->version, key->n}})
            ? 0
            : 1;
  }
  CKPTREE_RETURN_IF_ERROR(small.status());

  const schema::KeyRange roots = schema::AllRows(Row::kTree);
  for (rows.Seek(roots.begin);
       rows.Valid() && rows.key() < roots.end && !moment->beside_save;
       rows.Next()) {
    const auto digest = schema::DecodeDigestKey(Row::kTree, rows.key());
    unused_trees += digest.has_value() && !trees.contains(*digest) ? 1 : 0;
  }
  CKPTREE_RETURN_IF_ERROR(rows.status());
  if (unused_blocks + unused_trees > 0) {
    damage->Add(Finding::Severity::kWarning,
                absl::StrFormat("%d blocks and %d trees are stored and nothing "
                                "refers to them; `ckptree gc` frees them",
                                unused_blocks, unused_trees));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
