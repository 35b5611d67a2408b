// SPDX-License-Identifier: Apache-2.0

// The steps:
//
//   1. No writer lives; the directory is sane.
//   2. The rows: the file of all rows and the records after it, as far as they
//      are whole. Where something of them is not: those of the index and the
//      records after it, if these are whole; else all that either has.
//   3. An index is made of them and of every table (kv/rocks/index_rebuild.h).

#include "kv/salvage.h"

#include <algorithm>
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

// Confined to one thread.
class Salvager {
 public:
  Salvager(const std::string& from, const std::string& to,
           const Options& options, bool locked, SegmentSpaceFn space_of,
           absl::FunctionRef<bool()> cancelled)
      : from_(from),
        to_(to),
        options_(options),
        locked_(locked),
        reader_options_(Guarded(options, Guard::kReader, nullptr)),
        space_of_(space_of),
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
                             FindRowsFile(reader_options_, from_));
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
    report_.notes.insert(report_.notes.end(), journal_.damage.begin(),
                         journal_.damage.end());
    report_.version_ceiling =
        std::max(report_.version_ceiling, journal_.version_ceiling);
    std::uint64_t next = base_ + 1;
    for (const auto& [ordinal, record] : journal_.records) {
      if (ordinal <= base_) continue;
      if (ordinal > next) missing_.push_back({next, ordinal - 1});
      next = ordinal + 1;
      if (!Take(record, &rows_)) missing_.push_back({ordinal, ordinal});
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

  // Only where something is missing: what the index has of it.
  absl::Status TakeIndex() {
    if (rows_problem_.empty() && records_problem_.empty() && missing_.empty()) {
      return absl::OkStatus();
    }
    if (!rows_problem_.empty()) report_.notes.push_back(rows_problem_);
    if (!records_problem_.empty()) report_.notes.push_back(records_problem_);
    const absl::StatusOr<std::shared_ptr<Instance>> index =
        Instance::Open(Role::kForensic, IndexDirectory(from_), reader_options_,
                       nullptr, nullptr);
    std::uint64_t upto = 0;
    bool gaps = !index.ok();
    if (index.ok()) {
      RowChanges rows;
      const ChainPoint records = MarkerOf(**index, Space::kRecords);
      const ChainPoint small = MarkerOf(**index, Space::kSmall);
      const ChainPoint as_of =
          records.ordinal < small.ordinal ? records : small;
      upto = as_of.ordinal;
      for (const Space space : {Space::kRecords, Space::kSmall}) {
        CKPTREE_ASSIGN_OR_RETURN(const bool whole,
                                 TakeSpace(**index, space, &rows));
        gaps = gaps || !whole;
      }
      const bool all = std::all_of(
          missing_.begin(), missing_.end(),
          [upto](const LostCommits& lost) { return lost.last <= upto; });
      if (!gaps && all && upto >= base_ && records_problem_.empty() &&
          HashAt(journal_, upto) == as_of.hash) {
        // It has everything up to there, and nothing that was removed.
        for (const auto& [ordinal, record] : journal_.records) {
          if (ordinal > upto) Take(record, &rows);
        }
        rows_ = std::move(rows);
        return absl::OkStatus();
      }
      // What the journal says of a row counts, a removal, too.
      rows_.merge(rows);
      report_.rebuilt = true;
    } else {
      report_.notes.emplace_back(index.status().message());
    }
    report_.rows_missing = true;
    for (const LostCommits& lost : missing_) {
      if (!gaps && lost.last <= upto) continue;
      report_.losses.push_back(
          Text(lost) + (lost.first == lost.last
                            ? ": a step, a tag, a pin or a removal is lost"
                            : ": steps, tags, pins or removals are lost"));
    }
    const bool covered = !gaps && upto >= base_ && base_ > 0;
    if (!rows_problem_.empty() && !covered) {
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

  static ChainPoint MarkerOf(const Instance& index, Space space) {
    const auto marker = ReadMarker(index, space);
    return marker.ok() && marker->has_value() ? **marker : ChainPoint();
  }

  // True where all of it could be read.
  absl::StatusOr<bool> TakeSpace(const Instance& index, Space space,
                                 RowChanges* rows) {
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
                rows->try_emplace(
                    row, BlockName{value.size(), base::DigestOf(value)});
              } else {
                rows->try_emplace(std::move(row), std::string(value));
              }
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
    source.options = reader_options_;
    source.space_of = [this](std::string_view value) {
      return space_of_(value);
    };
    source.find_block =
        [&blocks](
            const RowKey& key) -> absl::StatusOr<std::optional<std::string>> {
      const auto found = blocks.whole.find(key.key);
      if (key.space != Space::kSmall || found == blocks.whole.end()) {
        return std::nullopt;
      }
      return std::string(found->second);
    };
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
  const absl::FunctionRef<bool()> cancelled_;
  SalvageReport report_;
  std::uint64_t base_ = 0;
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
                                      absl::FunctionRef<bool()> cancelled) {
  return Salvager(AbsolutePath(from), AbsolutePath(to), options, locked,
                  space_of, cancelled)
      .Run();
}

}  // namespace ckptree::kv
