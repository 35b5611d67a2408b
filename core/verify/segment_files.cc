// SPDX-License-Identifier: Apache-2.0

#include "core/verify/segment_files.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/coding/coded_block.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "core/process/out_of_reach.h"
#include "core/version/open_check.h"
#include "core/version/store_features.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

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
  if (OutOfReach(scan.status()).has_value()) return scan.status();
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

}  // namespace

absl::StatusOr<SegmentFiles> SegmentFiles::List(const kv::Database& database,
                                                kv::Iterator* rows,
                                                SegmentFileOptions options) {
  SegmentFiles list(database, std::move(options));
  CKPTREE_ASSIGN_OR_RETURN(std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  list.files_.resize(files.size());
  const schema::KeyRange range = schema::AllRows(Row::kSegment);
  for (rows->Seek(range.begin); rows->Valid() && rows->key() < range.end;
       rows->Next()) {
    if (list.options_.cancelled && list.options_.cancelled()) {
      return absl::CancelledError("verify stopped");
    }
    const auto fields = schema::DecodeSegmentKey(rows->key());
    auto row = schema::DecodeSegmentRow(rows->value());
    if (!fields.has_value() || !row.ok()) continue;  // CheckRows reports it.
    const kv::LiveFile* file = FileOfSegment(files, *fields);
    if (file != nullptr) {
      list.files_[static_cast<std::size_t>(file - files.data())]
          .segments.push_back(list.segments_.size());
    }
    Segment& segment = list.segments_.emplace_back();
    segment.key = std::string(rows->key());
    segment.fields = *fields;
    segment.row = *std::move(row);
    segment.has_file = file != nullptr;
  }
  CKPTREE_RETURN_IF_ERROR(rows->status());
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].space == Space::kChunks && !files[i].far) {
      list.ahead_.push_back(i);
      list.bytes_ += files[i].bytes;
    }
    list.files_[i].file = std::move(files[i]);
  }
  return list;
}

absl::Status SegmentFiles::Each(
    const std::vector<std::size_t>& which,
    const std::function<absl::Status(std::size_t)>& check) {
  FirstError error;
  const std::thread::id here = std::this_thread::get_id();
  ForEach(0, which.size(), [&](std::size_t i) {
    if (error.any()) return;
    if (options_.cancelled && std::this_thread::get_id() == here &&
        options_.cancelled()) {
      error.Note(absl::CancelledError("verify stopped"));
      return;
    }
    error.Note(check(which[i]));
  });
  return error.status();
}

absl::Status SegmentFiles::CheckFiles(const std::vector<std::size_t>& files) {
  CKPTREE_RETURN_IF_ERROR(Each(files, [this](std::size_t i) {
    if (files_[i].file.whole) {
      files_[i].status = database_->CheckFile(files_[i].file);
    }
    files_[i].checked = true;
    return absl::OkStatus();
  }));
  // Behind them, as these drop the file from the page cache first.
  std::vector<std::size_t> segments;
  for (const std::size_t i : files) {
    segments.insert(segments.end(), files_[i].segments.begin(),
                    files_[i].segments.end());
  }
  return CheckSegments(segments);
}

absl::Status SegmentFiles::CheckSegments(
    const std::vector<std::size_t>& segments) {
  return Each(segments, [this](std::size_t i) {
    Segment& segment = segments_[i];
    Damage damage(&segment.report);
    const absl::Status status = CheckSegment(
        *database_, segment.key, segment.fields, segment.row, &damage);
    if (!OutOfReach(status).has_value()) return status;
    segment.silent = status;
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> SegmentFiles::CheckUpTo(std::string_view key) {
  while (next_ < ahead_.size() && files_[ahead_[next_]].file.first_key <= key) {
    std::vector<std::size_t> files;
    std::uint64_t bytes = 0;
    for (; next_ < ahead_.size(); ++next_) {
      const std::uint64_t more = files_[ahead_[next_]].file.bytes;
      if (!files.empty() && bytes + more > options_.bytes_ahead) break;
      bytes += more;
      files.push_back(ahead_[next_]);
    }
    CKPTREE_RETURN_IF_ERROR(CheckFiles(files));
    checked_bytes_ += bytes;
  }
  return next_ < ahead_.size() ? files_[ahead_[next_]].file.first_key
                               : std::string();
}

// The second copy of the leaf records. True where all of it is whole.
absl::StatusOr<bool> SegmentFiles::CheckLeafCopies(Damage* damage) {
  bool whole = true;
  const auto bad = [&](const std::string& what) {
    whole = false;
    damage->Add(Finding::Severity::kDamage,
                what + " (a second copy of leaf records)");
  };
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> copies,
                           database_->LeafCopies());
  for (const kv::LiveFile& copy : copies) {
    if (options_.cancelled && options_.cancelled())
      return absl::CancelledError("verify stopped");
    if (!copy.whole) {
      bad(copy.path + " is missing or cut short");
    } else if (const absl::Status status = database_->CheckFile(copy);
               !status.ok()) {
      bad(std::string(status.message()));
    }
  }
  if (!whole) return false;
  for (const auto& [file, segments, checked, first] : files_) {
    if (file.space != Space::kLeaves) continue;
    if (options_.cancelled && options_.cancelled())
      return absl::CancelledError("verify stopped");
    const absl::Status status = database_->CheckLeafCopies(file);
    // Where it is the first copy that cannot be read, its own check says so.
    if (!status.ok() && database_->CheckFile(file).ok()) {
      bad(file.path + ": " + std::string(status.message()));
    }
  }
  return whole;
}

absl::Status SegmentFiles::Finish(std::uint64_t newest_settled, bool far,
                                  Damage* damage) {
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].checked && (far || !files_[i].file.far)) rest.push_back(i);
  }
  CKPTREE_RETURN_IF_ERROR(CheckFiles(rest));
  checked_bytes_ = bytes_;
  absl::Status silent;
  for (const Segment& segment : segments_) {
    silent.Update(segment.silent);
    if (!segment.has_file) {
      damage->Add(Finding::Severity::kDamage,
                  schema::DescribeKey(Space::kRecords, segment.key) +
                      ": no file holds it");
    }
    for (const Finding& finding : segment.report.findings) {
      damage->Add(finding.severity, finding.what);
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(const bool copied, CheckLeafCopies(damage));
  for (const auto& [file, segments, checked, status] : files_) {
    if (!checked) continue;
    const std::string spared =
        copied && file.space == Space::kLeaves
            ? "; the second copy of its leaf records is whole"
            : "";
    if (!file.whole) {
      damage->Add(Finding::Severity::kDamage,
                  file.path + " is missing or cut short" + spared);
      continue;
    }
    if (OutOfReach(status).has_value()) {
      silent.Update(status);
    } else if (!status.ok()) {
      damage->Add(Finding::Severity::kDamage,
                  std::string(status.message()) + spared);
    }
    const auto first = schema::DecodeBlockKey(file.first_key);
    if (segments.empty() &&
        (!first.has_value() || first->version <= newest_settled)) {
      damage->Add(Finding::Severity::kWarning,
                  file.path +
                      " belongs to no save; the next open for "
                      "writing removes it");
    }
  }
  return silent;
}

}  // namespace ckptree::internal
