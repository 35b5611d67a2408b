// The steps:
//
//   1. No writer lives; the directory is sane.
//   2. What each table is: rows, or a segment. The rest cannot be read.
//   3. The rows: read beside the damage where the MANIFEST leads to them, put
//      together from tables and logs where it does not, or where it leads to
//      fewer commits.
//   4. A new database takes the rows that can be read,
//   5. and every segment: a whole one by its second name, one that cannot be
//      adopted as a copy of the blocks that can be read.

#include "kv/salvage.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kv/commit_chain.h"
#include "kv/file_system.h"
#include "kv/guard.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/rocksdb_options.h"
#include "kv/row_rebuild.h"
#include "kv/scan_around.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "kv/table_source.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/iterator.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::size_t kBatchBytes = std::size_t{1} << 20;

// Of files that may overlap and be out of order, which nothing of ours is but
// what a crash left beside its successor.
rocksdb::IngestExternalFileOptions TolerantAdoptOptions() {
  rocksdb::IngestExternalFileOptions options = AdoptOptions();
  options.allow_global_seqno = true;
  options.allow_blocking_flush = true;
  options.fail_if_not_bottommost_level = false;
  return options;
}

// Confined to one thread.
class Salvager {
 public:
  Salvager(const std::string& from, const std::string& to,
           const Options& options, SegmentSpaceFn space_of,
           absl::FunctionRef<bool()> cancelled)
      : from_(from),
        from_db_(Join(from, kDbName)),
        to_(to),
        to_db_(Join(to, kDbName)),
        options_(options),
        reader_options_(Guarded(options, Guard::kReader, nullptr)),
        reading_(rocksdb::NewCompositeEnv(FileSystemOf(reader_options_))),
        writing_(rocksdb::NewCompositeEnv(FileSystemOf(options_))),
        space_of_(space_of),
        cancelled_(cancelled) {}

  absl::StatusOr<SalvageReport> Run() {
    // Step 1.
    CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(from_));
    if (!found.db) {
      return absl::NotFoundError(
          absl::StrFormat("there is no database in %s", from_));
    }
    if (!options_.locked) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> holder,
                               StoreLock::Probe(from_));
      if (holder.has_value()) {
        return absl::UnavailableError(absl::StrFormat(
            "%s is damaged and a process has it open for writing", from_));
      }
    }
    CKPTREE_RETURN_IF_ERROR(LookAtTables());
    CKPTREE_RETURN_IF_ERROR(FindRows());
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, to_));
    CKPTREE_ASSIGN_OR_RETURN(
        fresh_,
        Instance::Open(Role::kCreate, to_db_, options_, nullptr, nullptr));
    CKPTREE_RETURN_IF_ERROR(TakeRows());
    CKPTREE_RETURN_IF_ERROR(TakeSegments());
    rows_.reset();
    fresh_.reset();
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options_, to_ + ".rows"));
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options_, to_ + ".segments"));
    return std::move(report_);
  }

 private:
  absl::Status CheckCancelled() const {
    return cancelled_() ? absl::CancelledError("interrupted")
                        : absl::OkStatus();
  }

  // Step 2.
  absl::Status LookAtTables() {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(options_, from_db_));
    for (const std::string& name : names) {
      if (!name.ends_with(".sst")) continue;
      CKPTREE_RETURN_IF_ERROR(CheckCancelled());
      absl::StatusOr<TableSource> table =
          LookAtTable(Join(from_db_, name), reading_.get(), space_of_);
      if (!table.ok()) {
        report_.losses.push_back(
            absl::StrFormat("the table cannot be read: %s",
                            std::string(table.status().message())));
      } else if (!table->space.has_value()) {
        report_.losses.push_back(absl::StrFormat(
            "%s: nobody can tell what the table holds", table->path));
      } else if (*table->space == Space::kRecords ||
                 *table->space == Space::kSmall) {
        row_tables_.push_back(*std::move(table));
      } else {
        segments_.push_back(*std::move(table));
      }
    }
    return absl::OkStatus();
  }

  // Step 3.
  absl::Status FindRows() {
    absl::StatusOr<std::shared_ptr<Instance>> listed = Instance::Open(
        Role::kForensic, from_db_, reader_options_, nullptr, nullptr);
    if (listed.ok() && !MissesCommits(**listed)) {
      UseListed(*std::move(listed));
      return absl::OkStatus();
    }
    absl::StatusOr<RebuiltRows> rebuilt =
        RebuildRows(from_db_, row_tables_, to_ + ".rows", options_);
    if (!rebuilt.ok()) {
      if (!listed.ok()) return rebuilt.status();
      report_.notes.emplace_back(rebuilt.status().message());
      UseListed(*std::move(listed));
      return absl::OkStatus();
    }
    if (listed.ok() && TipOf(**listed) >= TipOf(*rebuilt->instance)) {
      UseListed(*std::move(listed));
      return absl::OkStatus();
    }
    if (!listed.ok()) {
      report_.notes.emplace_back(listed.status().message());
    } else {
      report_.notes.emplace_back("the MANIFEST does not name all tables");
    }
    report_.rebuilt = true;
    report_.notes.insert(report_.notes.end(), rebuilt->notes.begin(),
                         rebuilt->notes.end());
    left_out_ = std::move(rebuilt->left_out);
    rows_ = std::move(rebuilt->instance);
    return absl::OkStatus();
  }

  static std::uint64_t TipOf(const Instance& instance) {
    const absl::StatusOr<ChainTip> tip = ReadTip(instance);
    return tip.ok() ? tip->ordinal : 0;
  }

  // True where HEAD knows of commits that are not in `listed`, or is gone, and
  // there are tables of which `listed` does not know.
  bool MissesCommits(const Instance& listed) const {
    const absl::StatusOr<HeadSlot> head =
        HeadFile::Read(reader_options_, from_);
    if (head.ok() && TipOf(listed) >= head->ordinal) return false;
    return !Unlisted(listed).empty();
  }

  // The row tables of which `listed` does not know.
  std::vector<TableSource> Unlisted(const Instance& listed) const {
    const std::set<std::string, std::less<>> known =
        LiveTableNames(listed.db());
    std::vector<TableSource> unlisted;
    for (const TableSource& table : row_tables_) {
      if (!known.contains(BaseName(table.path))) unlisted.push_back(table);
    }
    return unlisted;
  }

  // The MANIFEST may end between the tables of one flush: rows without their
  // blocks. Blocks never change, so those of another table do no harm; rows
  // might be such as were removed.
  void UseListed(std::shared_ptr<Instance> listed) {
    for (TableSource& table : Unlisted(*listed)) {
      if (*table.space == Space::kSmall) left_out_.push_back(std::move(table));
    }
    rows_ = std::move(listed);
  }

  // Step 4.
  absl::Status TakeRows() {
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      rocksdb::ReadOptions options;
      options.fill_cache = false;
      CKPTREE_ASSIGN_OR_RETURN(
          const ScanGaps gaps,
          ScanAround(
              [&] {
                return std::unique_ptr<rocksdb::Iterator>(
                    rows_->db()->NewIterator(options, rows_->family(space)));
              },
              [&](std::string_view key, std::string_view value) {
                return Put(space, key, value);
              }));
      NoteGaps(gaps, absl::StrFormat(
                         "rows of `%s`",
                         schema::kSpaceNames[static_cast<std::size_t>(space)]));
      CKPTREE_RETURN_IF_ERROR(WriteRows());
    }
    for (const TableSource& table : left_out_) {
      // Of an older table only what no newer one has.
      CKPTREE_ASSIGN_OR_RETURN(
          const ScanGaps gaps,
          ScanTable(table, reading_.get(),
                    [&](std::string_view key,
                        std::string_view value) -> absl::Status {
                      CKPTREE_ASSIGN_OR_RETURN(const auto newer,
                                               fresh_->Get(*table.space, key));
                      return newer.has_value() ? absl::OkStatus()
                                               : Put(*table.space, key, value);
                    }));
      NoteGaps(gaps, "rows in " + table.path);
      CKPTREE_RETURN_IF_ERROR(WriteRows());
    }
    // A reader of the new database does not write, so nothing stays in a log.
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      CKPTREE_RETURN_IF_ERROR(ToStatus(
          fresh_->db()->Flush(rocksdb::FlushOptions(), fresh_->family(space)),
          "writing " + to_db_));
    }
    return absl::OkStatus();
  }

  absl::Status Put(Space space, std::string_view key, std::string_view value) {
    if (IsRebuildMark(key)) return absl::OkStatus();
    ++report_.rows;
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(batch_.Put(fresh_->family(space), rocksdb::Slice(key),
                            rocksdb::Slice(value)),
                 "collecting rows"));
    if (batch_.GetDataSize() < kBatchBytes) return absl::OkStatus();
    return WriteRows();
  }

  absl::Status WriteRows() {
    CKPTREE_RETURN_IF_ERROR(CheckCancelled());
    rocksdb::WriteOptions options;
    options.disableWAL = true;  // Flushed at the end; a failure starts anew.
    const rocksdb::Status status = fresh_->db()->Write(options, &batch_);
    batch_.Clear();
    return ToStatus(status, "writing " + to_db_);
  }

  void NoteGaps(const ScanGaps& gaps, std::string_view what) {
    if (gaps.count == 0) return;
    report_.losses.push_back(
        absl::StrFormat("%s cannot be read in %d places: %s", what, gaps.count,
                        std::string(gaps.first.message())));
  }

  // Step 5.
  absl::Status TakeSegments() {
    const std::string folder = to_ + ".segments";
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, folder));
    for (const TableSource& table : segments_) {
      CKPTREE_RETURN_IF_ERROR(CheckCancelled());
      const std::string path = Join(folder, BaseName(table.path));
      CKPTREE_RETURN_IF_ERROR(LinkOrCopy(options_, table.path, path));
      ++report_.segments;
      if (Adopt(*table.space, path).ok()) continue;
      // One end of it is damaged, or a compaction made it.
      CKPTREE_RETURN_IF_ERROR(RemoveFile(options_, path));
      const auto gaps =
          RewriteTable(table, reading_.get(), path, writing_.get());
      CKPTREE_RETURN_IF_ERROR(gaps.status());
      if (gaps->count > 0) {
        report_.notes.push_back(
            absl::StrFormat("%s is damaged in %d places: %s", table.path,
                            gaps->count, std::string(gaps->first.message())));
      }
      const absl::Status adopted = Adopt(*table.space, path);
      if (!adopted.ok()) {
        report_.losses.push_back(
            absl::StrFormat("the table cannot be read: %s: %s", table.path,
                            std::string(adopted.message())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Adopt(Space space, const std::string& path) {
    return ToStatus(fresh_->db()->IngestExternalFile(
                        fresh_->family(space), {path}, TolerantAdoptOptions()),
                    "adopting");
  }

  const std::string from_;
  const std::string from_db_;
  const std::string to_;
  const std::string to_db_;
  const Options options_;
  const Options reader_options_;
  const std::unique_ptr<rocksdb::Env> reading_;
  const std::unique_ptr<rocksdb::Env> writing_;
  const SegmentSpaceFn space_of_;
  const absl::FunctionRef<bool()> cancelled_;
  SalvageReport report_;
  std::vector<TableSource> row_tables_;
  std::vector<TableSource> segments_;
  std::vector<TableSource> left_out_;
  std::shared_ptr<Instance> rows_;
  std::shared_ptr<Instance> fresh_;
  rocksdb::WriteBatch batch_;
};

}  // namespace

absl::StatusOr<SalvageReport> Salvage(const std::string& from,
                                      const std::string& to,
                                      const Options& options,
                                      SegmentSpaceFn space_of,
                                      absl::FunctionRef<bool()> cancelled) {
  return Salvager(AbsolutePath(from), AbsolutePath(to), options, space_of,
                  cancelled)
      .Run();
}

}  // namespace ckptree::kv
