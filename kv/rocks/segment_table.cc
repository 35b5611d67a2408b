// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/segment_table.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/kept_reads.h"
#include "kv/rocks/segment_layout.h"
#include "kv/segment_writer.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using schema::Space;

// The first record of a segment is shorter.
constexpr std::uint64_t kMostAsked = 64 << 10;

bool IsSegment(Space space) {
  return space == Space::kLeaves || space == Space::kChunks;
}

// The zeros that SegmentWriter puts before an aligned record.
bool IsGap(std::string_view key, std::string_view before) {
  return key.size() == before.size() + 1 && key.ends_with('\0') &&
         key.starts_with(before);
}

// True where most records have a block of their own.
bool HaveBlocksOfTheirOwn(const std::vector<FoundRecord>& records) {
  std::size_t alone = 0;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const FoundRecord& before = records[i - 1];
    alone += records[i].offset ==
             before.offset + before.size + kBlockTailBytes +
                 BytesBefore(records[i].key.size(), records[i].size);
  }
  return 2 * alone >= records.size();
}

}  // namespace

absl::StatusOr<SegmentTable> SegmentTable::Open(const Options& options,
                                                const std::string& path,
                                                SegmentSpaceFn space_of) {
  SegmentTable table;
  table.path_ = path;
  table.options_ = options;
  CKPTREE_ASSIGN_OR_RETURN(table.bytes_, FileSize(options, path));
  table.damage_ = table.OpenWithRocksDB(options, space_of);
  // A read may have failed that does not fail again.
  if (!table.damage_.ok()) {
    table.damage_ = table.OpenWithRocksDB(options, space_of);
  }
  if (table.damage_.ok()) return table;
  const absl::Status found = table.Recognise(space_of);
  if (found.ok()) return table;
  // Where nothing could be read nothing is known to be damaged.
  return IsUnreadable(table.damage_) && !IsUnsteady(found) ? table.damage_
                                                           : found;
}

absl::Status SegmentTable::OpenWithRocksDB(const Options& options,
                                           SegmentSpaceFn space_of) {
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(
      FileSystemOf(Guarded(options, Guard::kReader, nullptr)));
  CKPTREE_ASSIGN_OR_RETURN(TableEnds ends, ReadTableEnds(env.get(), path_));
  first_key_ = std::move(ends.first_key);
  last_key_ = std::move(ends.last_key);
  bool known = false;
  for (int i = 0; i < schema::kSpaceCount; ++i) {
    if (schema::kSpaceNames[static_cast<std::size_t>(i)] != ends.family) {
      continue;
    }
    space_ = static_cast<Space>(i);
    known = true;
  }
  // A SegmentWriter does not know the family that its file will be in.
  if (const auto space = space_of(ends.first_value);
      !known && space.has_value()) {
    space_ = *space;
    known = true;
  }
  return known ? absl::OkStatus() : absl::DataLossError("no known space");
}

absl::Status SegmentTable::Recognise(SegmentSpaceFn space_of) {
  CKPTREE_RETURN_IF_ERROR(OpenFile());
  std::vector<FoundRecord> found = FindRecords(file_.get(), bytes_, ScanHow());
  CKPTREE_RETURN_IF_ERROR(Steady());
  std::optional<Space> space;
  for (const FoundRecord& record : found) {
    if (record.size > kMostAsked) continue;
    CKPTREE_ASSIGN_OR_RETURN(const std::string value, Read(record));
    space = space_of(value);
    if (space.has_value()) break;
  }
  if (!space.has_value()) {
    for (const FoundRecord& record : found) {
      if (record.key.size() == kSegmentKeyBytes) {
        space = HaveBlocksOfTheirOwn(found) ? Space::kChunks : Space::kLeaves;
      } else if (IsArrayBlock(record.key) && !record.key.ends_with('\0')) {
        space = Space::kSmall;
      }
      if (space.has_value()) break;
    }
  }
  // A table of rows without blocks of arrays has nothing that is missed.
  space_ = space.value_or(Space::kRecords);
  if (found.empty()) {
    return absl::DataLossError(
        absl::StrFormat("no record is found in %s", path_));
  }
  if (space_ == Space::kLeaves) records_ = Ascending(std::move(found));
  if (IsSegment(space_)) {
    CKPTREE_ASSIGN_OR_RETURN(const auto* records, Records());
    if (records->empty()) {
      return absl::DataLossError(
          absl::StrFormat("no record is found in %s", path_));
    }
    first_key_ = records->front().key;
    last_key_ = records->back().key;
  }
  // There may be many tables.
  file_.reset();
  return absl::OkStatus();
}

absl::Status SegmentTable::OpenFile() {
  if (file_ != nullptr) return absl::OkStatus();
  const DamagedTablesWelcome welcome;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(FileSystemOf(options_)->NewRandomAccessFile(
                   path_, rocksdb::FileOptions(), &file, nullptr),
               path_));
  unsteady_ = std::make_shared<std::atomic<bool>>(false);
  file_ = ReadSteadily(std::move(file), path_, unsteady_);
  return absl::OkStatus();
}

absl::Status SegmentTable::Steady() const {
  return unsteady_->load() ? UnsteadyError(path_) : absl::OkStatus();
}

absl::StatusOr<const std::vector<FoundRecord>*> SegmentTable::Records() {
  CKPTREE_RETURN_IF_ERROR(OpenFile());
  if (!records_.has_value()) {
    ScanHow how;
    how.one_record = space_ == Space::kChunks;
    std::vector<FoundRecord> found = FindRecords(file_.get(), bytes_, how);
    CKPTREE_RETURN_IF_ERROR(Steady());
    if (IsSegment(space_)) found = Ascending(std::move(found));
    records_ = std::move(found);
  }
  return &*records_;
}

absl::StatusOr<std::string> SegmentTable::Read(
    const FoundRecord& record) const {
  std::string value = ReadFound(file_.get(), record);
  CKPTREE_RETURN_IF_ERROR(Steady());
  return value;
}

void SegmentTable::Forget() {
  file_.reset();
  records_.reset();
}

absl::Status WriteTogether(const Options& options,
                           std::span<SegmentTable> tables,
                           const std::string& path,
                           std::vector<std::string>* unproven) {
  struct Source {
    const FoundRecord* record;
    const SegmentTable* table;
  };
  std::vector<Source> sources;
  for (SegmentTable& table : tables) {
    CKPTREE_ASSIGN_OR_RETURN(const auto* records, table.Records());
    for (const FoundRecord& record : *records) {
      sources.push_back({&record, &table});
    }
  }
  // Blocks never change: of those with one key any will do that is whole.
  std::stable_sort(
      sources.begin(), sources.end(), [](const Source& a, const Source& b) {
        return std::tuple(std::string_view(a.record->key), !a.record->proven) <
               std::tuple(std::string_view(b.record->key), !b.record->proven);
      });
  const Space space = tables.front().space();
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<SegmentWriter> writer,
      SegmentWriter::Create(options, space, path, /*expected_bytes=*/0));
  std::string before;
  bool first = true;
  for (const auto& [record, table] : sources) {
    if (!first && (record->key == before || IsGap(record->key, before))) {
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::string value, table->Read(*record));
    CKPTREE_RETURN_IF_ERROR(space == Space::kChunks && !first
                                ? writer->AddAligned(record->key, value)
                                : writer->Add(record->key, value));
    if (!record->proven) unproven->push_back(record->key);
    before = record->key;
    first = false;
  }
  return writer->Finish().status();
}

}  // namespace ckptree::kv
