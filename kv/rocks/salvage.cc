// SPDX-License-Identifier: Apache-2.0

// The steps:
//
//   1. No writer lives; the directory is sane.
//   2. The rows: the file of all rows and the records after it, as far as they
//      are whole. Where something of them is not, and the index is this
//      journal's: the rows of the index, which has all commits up to its
//      marker, the lost ones, too, and the records after it. What the index
//      cannot give of them is as the journal had it last.
//   3. An index is made of them and of every table (kv/rocks/index_rebuild.h).

#include "kv/salvage.h"

#include <algorithm>
#include <array>
#include <cstdint>
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
#include "kv/file_system.h"
#include "kv/journal/reader.h"
#include "kv/journal/replay.h"
#include "kv/journal/rows_file.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/index_rebuild.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/marker.h"
#include "kv/rocks/row_tables.h"
#include "kv/rocks/scan_around.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::string_view kTablesOfRows = "rows";

// Confined to one thread.
class Salvager {
 public:
  Salvager(const std::string& from, const std::string& to,
           const Options& options, bool locked, SegmentSpaceFn space_of,
           StoreUuidFn uuid_of, absl::FunctionRef<bool()> cancelled)
      : from_(from),
        to_(to),
        options_(options),
        locked_(locked),
        reader_options_(Guarded(options, Guard::kReader, nullptr)),
        space_of_(space_of),
        uuid_of_(uuid_of),
        cancelled_(cancelled) {}

  absl::StatusOr<SalvageReport> Run() {
    // Step 1.
    CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(from_));
    if (!found.db && !found.journal) {
      return absl::NotFoundError(
          absl::StrFormat("there is no database in %s", from_));
    }
    if (!locked_) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> holder,
                               StoreLock::Probe(from_));
      if (holder.has_value()) {
        return absl::UnavailableError(absl::StrFormat(
            "%s is damaged and a process has it open for writing", from_));
      }
    }
    CKPTREE_RETURN_IF_ERROR(TakeRowsFile());
    CKPTREE_RETURN_IF_ERROR(TakeRecords());
    CKPTREE_RETURN_IF_ERROR(TakeIndex());
    if (rows_.empty()) {
      return absl::DataLossError(
          absl::StrFormat("no row of %s can be read", from_));
    }
    return MakeIndex();
  }

 private:
  absl::Status CheckCancelled() const {
    return cancelled_() ? absl::CancelledError("interrupted")
                        : absl::OkStatus();
  }

  // Step 2.
  absl::Status TakeRowsFile() {
    CKPTREE_ASSIGN_OR_RETURN(const RowsFile file,
                             FindRowsFileAnywhere(reader_options_, from_));
    base_ = file.ordinal;
    if (base_ == 0) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<RowsReader>> reader = RowsReader::Open(
        reader_options_, file.path, RowsReader::OnDamage::kGoOn);
    if (!reader.ok()) {
      rows_problem_ = std::string(reader.status().message());
      rows_are_lost_ = true;
      return absl::OkStatus();
    }
    report_.version_ceiling = (*reader)->head().version_ceiling;
    uuid_ = TextOf((*reader)->head().uuid);
    base_hash_ = (*reader)->head().hash;
    while (true) {
      const absl::StatusOr<const RowsEntry*> entry = (*reader)->Next();
      if (!entry.ok()) {
        rows_problem_ = std::string(entry.status().message());
        rows_are_lost_ = true;
        break;
      }
      if (*entry == nullptr) break;
      rows_[(*entry)->key] = (*entry)->value;
    }
    for (const RowsDamage& damage : (*reader)->damage()) {
      std::string text =
          absl::StrFormat("%s is damaged: %s", file.path, damage.what);
      if (damage.rows == 0u) {
        report_.notes.push_back(std::move(text));
        continue;
      }
      if (damage.rows.has_value()) rows_are_lost_ = true;
      if (rows_problem_.empty()) rows_problem_ = std::move(text);
    }
    return absl::OkStatus();
  }

  absl::Status TakeRecords() {
    absl::StatusOr<JournalContent> journal =
        ReadJournal(reader_options_, from_, base_ + 1,
                    /*beside_writer=*/false, WhereUnreadable::kIsDamage);
    if (!journal.ok()) {
      records_problem_ = std::string(journal.status().message());
      return absl::OkStatus();
    }
    journal_ = *std::move(journal);
    if (!journal_.files.empty()) uuid_ = TextOf(journal_.newest.uuid);
    report_.notes.insert(report_.notes.end(), journal_.damage.begin(),
                         journal_.damage.end());
    report_.version_ceiling =
        std::max(report_.version_ceiling, journal_.version_ceiling);
    std::uint64_t next = base_ + 1;
    for (const auto& [ordinal, record] : journal_.records) {
      if (ordinal <= base_) continue;
      if (ordinal > next) missing_.push_back({next, ordinal - 1});
      next = ordinal + 1;
      if (!DecodeRows(record.rows).ok()) missing_.push_back({ordinal, ordinal});
    }
    for (const LostCommits& lost : journal_.lost) {
      if (lost.last >= next) {
        missing_.push_back({std::max(lost.first, next), lost.last});
      }
    }
    return absl::OkStatus();
  }

  static bool Take(const JournalRecord& record, RowChanges* rows) {
    const absl::StatusOr<std::vector<RowChange>> changes =
        DecodeRows(record.rows);
    if (!changes.ok()) return false;
    for (const RowChange& change : *changes) {
      std::optional<RowValue>& row =
          (*rows)[{change.space, std::string(change.key)}];
      switch (change.what) {
        case RowChange::What::kDelete:
          row.reset();
          break;
        case RowChange::What::kPut:
          row.emplace(std::string(change.value));
          break;
        case RowChange::What::kBlock:
          row.emplace(change.block);
          break;
      }
    }
    return true;
  }

  static std::string TextOf(const std::array<std::uint8_t, 16>& uuid) {
    return {uuid.begin(), uuid.end()};
  }

  // Of those with an ordinal in (after, upto].
  void TakeRecordsOf(std::uint64_t after, std::uint64_t upto,
                     RowChanges* rows) const {
    for (const auto& [ordinal, record] : journal_.records) {
      if (ordinal > after && ordinal <= upto) Take(record, rows);
    }
  }

  // What the index has.
  struct IndexRows {
    bool any = false;  // Else it cannot be read at all.
    RowChanges rows;
    std::uint64_t upto = 0;  // Commits up to here are in it.
    bool gaps = false;       // Some rows of it cannot be read.
    bool proven = false;     // The journal knows the commit that it ends at.
    std::string foreign;     // Why it is not of this journal; empty: it is.
  };

  absl::StatusOr<IndexRows> ReadIndex(const Instance& index) {
    IndexRows found;
    CKPTREE_ASSIGN_OR_RETURN(const ChainPoint records,
                             MarkerOf(index, Space::kRecords));
    CKPTREE_ASSIGN_OR_RETURN(const ChainPoint small,
                             MarkerOf(index, Space::kSmall));
    const ChainPoint as_of = records.ordinal < small.ordinal ? records : small;
    found.upto = as_of.ordinal;
    found.proven = HashAt(journal_, as_of.ordinal) == as_of.hash;
    for (const ChainPoint& marker : {records, small}) {
      if (marker.ordinal == 0) continue;
      std::optional<base::Digest> known = HashAt(journal_, marker.ordinal);
      if (marker.ordinal == base_ && base_hash_.has_value()) {
        known = base_hash_;
      }
      if (known.has_value() && *known != marker.hash) {
        found.foreign = absl::StrFormat("its commit %d is not the journal's",
                                        marker.ordinal);
      }
    }
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      CKPTREE_ASSIGN_OR_RETURN(const bool whole,
                               TakeSpace(index, space, &found));
      found.gaps = found.gaps || !whole;
    }
    return found;
  }

  // The index, or its tables where it does not open.
  absl::StatusOr<IndexRows> FindIndex() {
    const std::string directory = IndexDirectory(from_);
    absl::StatusOr<std::shared_ptr<Instance>> opened = Instance::Open(
        Role::kForensic, directory, reader_options_, nullptr, nullptr);
    IndexRows index;
    if (absl::IsResourceExhausted(opened.status())) return opened.status();
    if (opened.ok()) {
      CKPTREE_ASSIGN_OR_RETURN(index, ReadIndex(**opened));
    } else {
      report_.notes.emplace_back(opened.status().message());
      CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, to_));
      const std::string folder = Join(to_, kTablesOfRows);
      opened = OpenRowTables(options_, directory, folder, space_of_);
      if (absl::IsResourceExhausted(opened.status())) return opened.status();
      if (opened.ok()) {
        CKPTREE_ASSIGN_OR_RETURN(index, ReadIndex(**opened));
        report_.notes.push_back(absl::StrFormat(
            "the rows in tables of %s are read without its MANIFEST",
            directory));
      } else {
        report_.notes.emplace_back(opened.status().message());
      }
      index.gaps = true;  // Nothing tells whether a table is missing.
    }
    index.any = opened.ok();
    opened = absl::CancelledError("closed");
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options_, Join(to_, kTablesOfRows)));
    if (!index.foreign.empty()) {
      report_.notes.push_back(absl::StrFormat(
          "%s is not of this journal, and none of its rows is taken: %s",
          directory, index.foreign));
    }
    return index;
  }

  // Only where something is missing: what the index has of it.
  absl::Status TakeIndex() {
    constexpr std::uint64_t kLast = ~std::uint64_t{0};
    if (rows_problem_.empty() && records_problem_.empty() && missing_.empty()) {
      TakeRecordsOf(base_, kLast, &rows_);
      return absl::OkStatus();
    }
    if (!rows_problem_.empty()) report_.notes.push_back(rows_problem_);
    if (!records_problem_.empty()) report_.notes.push_back(records_problem_);
    CKPTREE_ASSIGN_OR_RETURN(IndexRows index, FindIndex());
    const bool has_index = index.any && index.foreign.empty();
    const bool covers = has_index && index.upto >= base_;
    if (covers) {
      RowChanges rows = std::move(index.rows);
      if (index.gaps) {
        TakeRecordsOf(base_, index.upto, &rows_);
        std::erase_if(rows_, [](const auto& row) { return !row.second; });
        rows.merge(rows_);
      }
      rows_ = std::move(rows);
      TakeRecordsOf(index.upto, kLast, &rows_);
    } else {
      TakeRecordsOf(base_, kLast, &rows_);
      // An older index has rows that the damaged file of all rows had, too.
      if (has_index && !rows_problem_.empty()) rows_.merge(index.rows);
    }
    // It has everything up to there, and nothing that was removed.
    const bool whole = covers && !index.gaps;
    const bool all = std::all_of(
        missing_.begin(), missing_.end(),
        [&index](const LostCommits& lost) { return lost.last <= index.upto; });
    if (whole && all && index.proven && records_problem_.empty()) {
      return absl::OkStatus();
    }
    report_.rebuilt = has_index;
    report_.rows_missing = true;
    for (LostCommits lost : missing_) {
      if (whole && lost.last <= index.upto) continue;
      if (whole) lost.first = std::max(lost.first, index.upto + 1);
      report_.losses.push_back(
          Text(lost) + (lost.first == lost.last
                            ? ": a step, a tag, a pin or a removal is lost, "
                              "and what it replaced may be here again"
                            : ": steps, tags, pins or removals are lost, and "
                              "what they replaced may be here again"));
    }
    if (!rows_problem_.empty() && !(whole && base_ > 0)) {
      report_.losses.push_back(absl::StrFormat(
          "%s up to %d are missing: %s",
          rows_are_lost_ ? "rows of commits"
                         : "nobody can tell whether rows of commits",
          base_, rows_problem_));
    }
    if (!records_problem_.empty()) {
      report_.losses.push_back(absl::StrFormat(
          "nobody can tell which commits are missing: %s", records_problem_));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<ChainPoint> MarkerOf(const Instance& index,
                                             Space space) {
    const auto marker = ReadMarker(index, space);
    if (absl::IsResourceExhausted(marker.status())) return marker.status();
    return marker.ok() && marker->has_value() ? **marker : ChainPoint();
  }

  // True where all of it could be read.
  absl::StatusOr<bool> TakeSpace(const Instance& index, Space space,
                                 IndexRows* found) {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    CKPTREE_ASSIGN_OR_RETURN(
        const ScanGaps gaps,
        ScanAround(
            [&] {
              return std::unique_ptr<rocksdb::Iterator>(
                  index.db()->NewIterator(options, index.family(space)));
            },
            [&](std::string_view key, std::string_view value) -> absl::Status {
              CKPTREE_RETURN_IF_ERROR(CheckCancelled());
              if (key >= kEndOfRows) return absl::OkStatus();
              RowKey row{space, std::string(key)};
              if (IsBlockKey(row)) {
                found->rows.try_emplace(
                    row, BlockName{value.size(), base::DigestOf(value)});
                return absl::OkStatus();
              }
              const std::string uuid =
                  space == Space::kRecords ? uuid_of_(key, value) : "";
              if (!uuid.empty() && !uuid_.empty() && uuid != uuid_) {
                found->foreign = "it has the uuid of another store";
              }
              found->rows.try_emplace(std::move(row), std::string(value));
              return absl::OkStatus();
            }));
    if (gaps.count > 0) {
      report_.notes.push_back(absl::StrFormat(
          "rows of `%s` cannot be read in %d places of the index: %s",
          schema::NameOf(space), gaps.count,
          std::string(gaps.first.message())));
    }
    return gaps.count == 0;
  }

  // Step 3.
  absl::StatusOr<SalvageReport> MakeIndex() {
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, to_));
    // Those of files from before the rows, too.
    const absl::StatusOr<JournalContent> all =
        ReadJournal(reader_options_, from_, 1, /*beside_writer=*/true,
                    WhereUnreadable::kIsDamage);
    const JournalBlocks blocks = BlocksIn(all.ok() ? *all : journal_);
    RebuildSource source;
    source.db_directory = IndexDirectory(from_);
    source.journal_directory = Join(from_, kJournalName);
    source.options = reader_options_;
    source.space_of = [this](std::string_view value) {
      return space_of_(value);
    };
    FindIn(blocks, &source);
    source.rows = [this](RowSink sink) -> absl::Status {
      for (const auto& [key, value] : rows_) {
        if (!value.has_value()) continue;
        ++report_.rows;
        CKPTREE_RETURN_IF_ERROR(sink(key, *value));
      }
      return absl::OkStatus();
    };
    CKPTREE_ASSIGN_OR_RETURN(
        const RebuildReport made,
        RebuildIndex(source, Join(to_, kDbName), options_, cancelled_));
    report_.segments = made.tables;
    // With all rows there, the steps name what is not in any table.
    std::vector<std::string>& unread =
        report_.rows_missing ? report_.losses : report_.notes;
    unread.insert(unread.end(), made.unread.begin(), made.unread.end());
    report_.losses.insert(report_.losses.end(), made.losses.begin(),
                          made.losses.end());
    report_.notes.insert(report_.notes.end(), made.notes.begin(),
                         made.notes.end());
    return std::move(report_);
  }

  const std::string from_;
  const std::string to_;
  const Options options_;
  const bool locked_;
  const Options reader_options_;
  const SegmentSpaceFn space_of_;
  const StoreUuidFn uuid_of_;
  const absl::FunctionRef<bool()> cancelled_;
  SalvageReport report_;
  std::string uuid_;  // Of the journal; empty: nobody knows.
  std::uint64_t base_ = 0;
  std::optional<base::Digest> base_hash_;
  JournalContent journal_;
  RowChanges rows_;
  std::vector<LostCommits> missing_;
  std::string rows_problem_;
  bool rows_are_lost_ = false;  // Else they may be.
  std::string records_problem_;
};

}  // namespace

absl::StatusOr<SalvageReport> Salvage(const std::string& from,
                                      const std::string& to,
                                      const Options& options, bool locked,
                                      SegmentSpaceFn space_of,
                                      StoreUuidFn uuid_of,
                                      absl::FunctionRef<bool()> cancelled) {
  return Salvager(AbsolutePath(from), AbsolutePath(to), options, locked,
                  space_of, uuid_of, cancelled)
      .Run();
}

}  // namespace ckptree::kv
