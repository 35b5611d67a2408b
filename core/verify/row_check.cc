// SPDX-License-Identifier: Apache-2.0

#include "core/verify/row_check.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/coding/coded_block.h"
#include "core/process/first_error.h"
#include "core/process/out_of_reach.h"
#include "core/version/open_check.h"
#include "core/version/store_features.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "schema/segment_record.h"
#include "schema/store_record.h"
#include "schema/tree.h"
#include "tbb/parallel_for.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

absl::Status DecodeRow(std::string_view key, std::string_view value) {
  switch (static_cast<Row>(key.front())) {
    case Row::kStore:
      return schema::DecodeStoreRecord(value).status();
    case Row::kStep:
    case Row::kRemoved:
      return schema::DecodeStepRecord(value).status();
    case Row::kStepMeta:
      return schema::DecodeStepMeta(value).status();
    case Row::kTree:
    case Row::kTreePage: {
      const auto row = static_cast<Row>(key.front());
      const auto digest = schema::DecodeDigestKey(row, key);
      if (!digest.has_value() || base::DigestOf(value) != *digest) {
        return absl::DataLossError("its bytes have another digest");
      }
      return row == Row::kTree ? schema::DecodeTreeRoot(value).status()
                               : schema::DecodeTreePage(value).status();
    }
    case Row::kDead:
      return schema::DecodeDeadList(value).status();
    case Row::kSegment:
      return schema::DecodeSegmentRow(value).status();
    case Row::kCommit:  // Of engines before the journal.
      break;
    case Row::kBranch:
      return schema::DecodeBranchRecord(value).status();
    case Row::kTag:
      return schema::DecodeTagRecord(value).status();
    case Row::kPin:
      return schema::DecodePinRecord(value).status();
    case Row::kSettings:
      return schema::DecodeBranchSettings(value).status();
    case Row::kFar:
      return schema::DecodeFarSegment(value).status();
  }
  return absl::DataLossError("no row has such a key");
}

// The blocks of one part of a small save, against its header.
struct SmallPart {
  std::optional<schema::SmallHeader> header;
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  std::uint32_t count = 0;
  base::DigestStream digest;

  void Check(const kv::Database& database, Damage* damage) const {
    if (!header.has_value()) return;
    // A scan passes damaged blocks, and tells of the damage; which leaves are
    // hurt, if any, is found chunk by chunk.
    if (count < header->block_count && !database.IndexDamage().empty()) return;
    if (header->block_count == count && header->digest == digest.Finish()) {
      return;
    }
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("small v%d part %d: its %d blocks are not the "
                                "%d that were saved",
                                version, part, count, header->block_count));
  }
};

absl::Status CheckSmallRows(const kv::Database& database,
                            const std::function<bool()>& cancelled,
                            Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(Space::kSmall, "", ""));
  std::optional<SmallPart> current;
  for (; scan.Valid(); scan.Next()) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    const auto fields = schema::DecodeSmallKey(scan.key());
    if (!fields.has_value()) {
      damage->Add(Finding::Severity::kDamage,
                  schema::DescribeKey(Space::kSmall, scan.key()) +
                      ": no block has such a key");
      continue;
    }
    if (!current.has_value() || current->version != fields->version ||
        current->part != fields->part) {
      if (current.has_value()) current->Check(database, damage);
      current.emplace();
      current->version = fields->version;
      current->part = fields->part;
    }
    if (fields->kind == schema::BlockKind::kHeader) {
      auto header = schema::DecodeSmallHeader(scan.value());
      if (header.ok()) {
        current->header = *header;
      } else {
        damage->Add(Finding::Severity::kDamage,
                    schema::DescribeKey(Space::kSmall, scan.key()) + ": " +
                        std::string(header.status().message()));
      }
      continue;
    }
    ++current->count;
    current->digest.Update(scan.key());
    current->digest.Update(scan.value());
  }
  if (current.has_value()) current->Check(database, damage);
  return scan.status();
}

bool IsGap(std::string_view value) {
  return value.size() <= schema::kMostGapBytes &&
         value.find_first_not_of('\0') == std::string_view::npos;
}

// Of a block of chunks.
std::uint64_t PayloadBytes(const schema::TableEntry& entry) {
  std::uint64_t bytes = 0;
  for (const schema::TableSlice& slice : entry.slices) {
    bytes = std::max(bytes, std::uint64_t{slice.offset} + slice.length);
  }
  return bytes;
}

// A block of a segment as it stands in its file.
struct StoredBlock {
  std::uint32_t n = 0;
  std::uint64_t bytes = 0;
  std::uint64_t payload = 0;  // What the coding says where it is one.
};

// Tells plain blocks from coded ones by the table, which has the lengths of the
// payloads; returns what is wrong with any of them.
std::vector<std::string> JudgeLengths(
    const std::optional<schema::SegmentTable>& table,
    std::vector<StoredBlock>* blocks) {
  std::vector<std::string> wrong;
  std::size_t at = 0;
  for (StoredBlock& block : *blocks) {
    if (!table.has_value() || block.payload == block.bytes) continue;
    while (at < table->entries.size() && table->entries[at].n < block.n) ++at;
    if (at == table->entries.size() || table->entries[at].n != block.n)
      continue;
    const std::uint64_t payload = PayloadBytes(table->entries[at]);
    if (block.bytes == payload) {
      block.payload = payload;  // Plain, whatever it looks like.
    } else if (block.payload != payload) {
      wrong.push_back(
          absl::StrFormat("block %d is the coding of %d bytes instead of %d",
                          schema::SequenceOf(block.n), block.payload, payload));
    }
  }
  return wrong;
}

// One segment against its row.
absl::Status CheckSegment(const kv::Database& database, std::string_view key,
                          const schema::SegmentKeyFields& fields,
                          const schema::SegmentRow& row, Damage* damage) {
  const std::string name = schema::DescribeKey(Space::kRecords, key);
  const auto bad = [&](const std::string& what) {
    damage->Add(Finding::Severity::kDamage, name + ": " + what);
  };
  const schema::KeyRange range =
      schema::BlocksOfSegment(fields.version, fields.part, fields.builder);
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator scan,
      database.Scan(fields.space, range.begin, range.end, 4 << 20));
  std::optional<schema::SegmentTable> table;
  std::uint64_t blocks = 0, bytes = 0, dead_bytes = 0;
  std::vector<std::uint32_t> numbers;
  std::vector<StoredBlock> found;
  for (; scan.Valid(); scan.Next()) {
    if (fields.space == Space::kChunks && schema::IsGapKey(scan.key())) {
      if (!IsGap(scan.value())) bad("a gap that holds something");
      continue;
    }
    const auto block = schema::DecodeBlockKey(scan.key());
    if (!block.has_value()) {
      bad("a key that is no block");
      continue;
    }
    const std::uint32_t sequence = schema::SequenceOf(block->n);
    if (sequence == schema::kHeaderSequence) {
      const auto header = schema::DecodeSegmentHeader(scan.value());
      if (!header.ok()) {
        bad(std::string(header.status().message()));
      } else if (header->version != fields.version ||
                 header->part != fields.part || header->space != fields.space ||
                 header->builder != fields.builder) {
        bad("its header is of another segment");
      }
      continue;
    }
    if (sequence == schema::kTableSequence) {
      auto decoded = schema::DecodeSegmentTable(scan.value());
      if (decoded.ok()) {
        table = *std::move(decoded);
      } else {
        bad(std::string(decoded.status().message()));
      }
      continue;
    }
    StoredBlock& stored = found.emplace_back();
    stored.n = block->n;
    stored.bytes = stored.payload = scan.value().size();
    if (fields.space == Space::kChunks && IsCodedBlock(scan.value())) {
      stored.payload = CodedPayloadBytes(scan.value());
    }
  }
  if (!scan.status().ok()) {
    bad(std::string(scan.status().message()));
    return absl::OkStatus();
  }
  bool coded = false;
  for (const std::string& what : JudgeLengths(table, &found)) bad(what);
  for (const StoredBlock& stored : found) {
    coded = coded || stored.payload != stored.bytes;
    if (row.IsDead(schema::SequenceOf(stored.n))) {
      dead_bytes += stored.payload;
      continue;
    }
    ++blocks;
    bytes += stored.payload;
    numbers.push_back(stored.n);
  }
  // The dead ones may be gone already.
  const std::uint64_t alive = row.block_count - row.dead_count();
  if (blocks != alive || bytes != row.bytes - row.dead_bytes ||
      dead_bytes > row.dead_bytes) {
    bad(absl::StrFormat(
        "its row says %d blocks of %d bytes, there are %d of %d", alive,
        row.bytes - row.dead_bytes, blocks, bytes));
  }
  if (!table.has_value()) {
    bad("its table is missing");
    return absl::OkStatus();
  }
  std::vector<std::uint32_t> listed;
  for (const schema::TableEntry& entry : table->entries) {
    if (!row.IsDead(schema::SequenceOf(entry.n))) listed.push_back(entry.n);
  }
  const bool same = listed == numbers &&
                    table->entries.size() == row.block_count &&
                    table->entries.front().n == row.first_n &&
                    table->entries.back().n == row.last_n;
  if (!same) bad("its table lists other blocks than there are");
  if (coded) {
    CKPTREE_ASSIGN_OR_RETURN(const bool known,
                             HasFeature(database, kCodedFeature));
    if (!known) bad("blocks are coded, and the store does not say so");
  }
  return absl::OkStatus();
}

// A segment by its row.
struct ListedSegment {
  std::string key;
  schema::SegmentKeyFields fields;
  schema::SegmentRow row;
  bool has_file = false;
};

struct FileChecks {
  std::vector<VerifyReport> of_segments;
  std::vector<absl::Status> of_files;  // OK of those that are not whole.
};

// Each segment against its row, and the checksums of each file. Both read the
// file, and know nothing of each other.
absl::StatusOr<FileChecks> CheckEach(const kv::Database& database,
                                     std::vector<ListedSegment> segments,
                                     const std::vector<kv::LiveFile>& files,
                                     const std::function<bool()>& cancelled) {
  FileChecks checks;
  checks.of_segments.resize(segments.size());
  checks.of_files.resize(files.size());
  FirstError error;
  const std::thread::id here = std::this_thread::get_id();
  tbb::parallel_for(
      std::size_t{0}, segments.size() + files.size(), [&](std::size_t i) {
        if (error.any()) return;
        if (cancelled && std::this_thread::get_id() == here && cancelled()) {
          error.Note(absl::CancelledError("verify stopped"));
          return;
        }
        if (i >= segments.size()) {
          const std::size_t file = i - segments.size();
          if (files[file].whole) {
            checks.of_files[file] = database.CheckFile(files[file]);
          }
          return;
        }
        const ListedSegment& segment = segments[i];
        Damage damage(&checks.of_segments[i]);
        if (!segment.has_file) {
          damage.Add(Finding::Severity::kDamage,
                     schema::DescribeKey(Space::kRecords, segment.key) +
                         ": no file holds it");
          return;
        }
        error.Note(CheckSegment(database, segment.key, segment.fields,
                                segment.row, &damage));
      });
  CKPTREE_RETURN_IF_ERROR(error.status());
  return checks;
}

// The second copy of the leaf records; `files` are those of the first. True
// where all of it is whole.
absl::StatusOr<bool> CheckLeafCopies(const kv::Database& database,
                                     const std::vector<kv::LiveFile>& files,
                                     const std::function<bool()>& cancelled,
                                     Damage* damage) {
  bool whole = true;
  const auto bad = [&](const std::string& what) {
    whole = false;
    damage->Add(Finding::Severity::kDamage,
                what + " (a second copy of leaf records)");
  };
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> copies,
                           database.LeafCopies());
  for (const kv::LiveFile& copy : copies) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    if (!copy.whole) {
      bad(copy.path + " is missing or cut short");
    } else if (const absl::Status status = database.CheckFile(copy);
               !status.ok()) {
      bad(std::string(status.message()));
    }
  }
  if (!whole) return false;
  for (const kv::LiveFile& file : files) {
    if (file.space != Space::kLeaves) continue;
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    const absl::Status status = database.CheckLeafCopies(file);
    // Where it is the first copy that cannot be read, its own check says so.
    if (!status.ok() && database.CheckFile(file).ok()) {
      bad(file.path + ": " + std::string(status.message()));
    }
  }
  return whole;
}

}  // namespace

absl::Status CheckRows(const kv::Database& database,
                       const std::function<bool()>& cancelled, Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(Space::kRecords, "", ""));
  for (; scan.Valid(); scan.Next()) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    if (scan.key().empty()) continue;
    if (const absl::Status status = DecodeRow(scan.key(), scan.value());
        !status.ok()) {
      damage->Add(
          Finding::Severity::kDamage,
          absl::StrFormat("%s: %s",
                          schema::DescribeKey(Space::kRecords, scan.key()),
                          status.message()));
    }
  }
  if (!scan.status().ok()) {
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("records: %s", scan.status().message()));
  }
  if (const absl::Status status = CheckSmallRows(database, cancelled, damage);
      !status.ok()) {
    if (absl::IsCancelled(status)) return status;
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("small: %s", status.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckSegmentFiles(const kv::Database& database, kv::Iterator* rows,
                               std::uint64_t newest_settled, bool far,
                               const std::function<bool()>& cancelled,
                               Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> all,
                           SortedLiveFiles(database));
  std::vector<kv::LiveFile> files = all;
  if (!far) {
    std::erase_if(files, [](const kv::LiveFile& file) { return file.far; });
  }
  std::vector<bool> used(files.size(), false);
  std::vector<ListedSegment> segments;
  const schema::KeyRange range = schema::AllRows(Row::kSegment);
  for (rows->Seek(range.begin); rows->Valid() && rows->key() < range.end;
       rows->Next()) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    const auto fields = schema::DecodeSegmentKey(rows->key());
    auto row = schema::DecodeSegmentRow(rows->value());
    if (!fields.has_value() || !row.ok()) continue;  // CheckRows reports it.
    const kv::LiveFile* file = FileOfSegment(files, *fields);
    if (file == nullptr && FileOfSegment(all, *fields) != nullptr) continue;
    if (file != nullptr) {
      used[static_cast<std::size_t>(file - files.data())] = true;
    }
    segments.push_back(
        {std::string(rows->key()), *fields, *std::move(row), file != nullptr});
  }
  CKPTREE_RETURN_IF_ERROR(rows->status());
  CKPTREE_ASSIGN_OR_RETURN(
      const FileChecks checks,
      CheckEach(database, std::move(segments), files, cancelled));
  for (const VerifyReport& found : checks.of_segments) {
    for (const Finding& finding : found.findings) {
      damage->Add(finding.severity, finding.what);
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(const bool copied,
                           CheckLeafCopies(database, files, cancelled, damage));
  absl::Status silent;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string spared =
        copied && files[i].space == Space::kLeaves
            ? "; the second copy of its leaf records is whole"
            : "";
    if (!files[i].whole) {
      damage->Add(Finding::Severity::kDamage,
                  files[i].path + " is missing or cut short" + spared);
      continue;
    }
    if (const absl::Status& status = checks.of_files[i];
        OutOfReach(status).has_value()) {
      silent.Update(status);
    } else if (!status.ok()) {
      damage->Add(Finding::Severity::kDamage,
                  std::string(status.message()) + spared);
    }
    const auto first = schema::DecodeBlockKey(files[i].first_key);
    if (!used[i] && (!first.has_value() || first->version <= newest_settled)) {
      damage->Add(Finding::Severity::kWarning,
                  files[i].path +
                      " belongs to no save; the next open for "
                      "writing removes it");
    }
  }
  if (silent.ok() || database.reads_far()) return silent;
  damage->Add(Finding::Severity::kWarning,
              absl::StrFormat("what is not on this disk was not looked at: %s",
                              silent.message()));
  return absl::OkStatus();
}

}  // namespace ckptree::internal
