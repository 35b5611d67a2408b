// SPDX-License-Identifier: Apache-2.0

// The steps:
//
//   1. What each table is.
//   2. A new database takes the rows, and the array blocks among them from
//      wherever they are: the caller, or the old tables of `small`.
//   3. They are flushed, before any segment is there: a database whose sequence
//      is 0 loses adopted files to its first compaction.
//   4. Segments: whole tables by a second name, all others written anew, and
//      each space made with all of them at once.
//   5. Tables that the disk cannot give now, by a second name that RocksDB does
//      not know.
//
// The import of 7.8.3 (db/import_column_family_job.cc) opens each file, takes
// its first and last key, whatever sequence is asked for, and moves it; unlike
// an ingestion it takes what a compaction wrote. Files of one level may not
// overlap, and it does not look whether a first or last key could be read.

#include "kv/rocks/index_rebuild.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/process_use.h"
#include "kv/rocks/caught_db.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/kept_reads.h"
#include "kv/rocks/logger.h"
#include "kv/rocks/marker.h"
#include "kv/rocks/memory_index.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/segment_table.h"
#include "kv/rocks/table_parts.h"
#include "kv/rocks/table_source.h"
#include "kv/store_directory.h"
#include "rocksdb/comparator.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
// In the new database's directory, while it is made.
constexpr std::string_view kImportName = "import";

// The database that is being made. Confined to one thread.
class FreshIndex {
 public:
  FreshIndex(const std::string& directory, const Options& options)
      : directory_(directory),
        env_(rocksdb::NewCompositeEnv(FileSystemOf(options))),
        log_(options.log) {}

  ~FreshIndex() {
    if (caught_->harm() != CaughtDb::Harm::kNone) {
      // It is in a folder of its own, which nobody opens as it is.
      static_cast<void>(caught_.release());
      static_cast<void>(env_.release());
      return;
    }
    for (auto* handle : handles_) {
      db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
    }
  }

  // With `records` and `small`; the others come when their files are known, and
  // in this order, so that each family has the number that it always has.
  absl::Status Open() {
    rocksdb::DBOptions options = DatabaseOptions(Role::kCreate, env_.get());
    options.info_log = MakeLogger(log_);
    families_ = Families(nullptr, /*repaired=*/false);
    const std::vector<rocksdb::ColumnFamilyDescriptor> first(
        families_.begin(), families_.begin() + 3);
    const ForkHold hold;
    return ToStatus(caught_->Open([&](rocksdb::DB** opened) {
      return rocksdb::DB::Open(options, directory_, first, &handles_, opened);
    }),
                    "making " + directory_);
  }

  absl::Status Put(Space space, std::string_view key, std::string_view value) {
    const std::size_t bytes = RowBytesInBatch(key, value);
    if (batch_.GetDataSize() + bytes > batch_room_) {
      CKPTREE_RETURN_IF_ERROR(Write());
      batch_room_ = kBatchBytes + bytes;
      batch_ = rocksdb::WriteBatch(batch_room_);
    }
    return ToStatus(
        batch_.Put(Handle(space), rocksdb::Slice(key), rocksdb::Slice(value)),
        "collecting rows");
  }

  absl::Status Flush() {
    CKPTREE_RETURN_IF_ERROR(Write());
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      CKPTREE_RETURN_IF_ERROR(
          ToStatus(db_->Flush(rocksdb::FlushOptions(), Handle(space)),
                   "writing " + directory_));
    }
    if (db_->GetLatestSequenceNumber() == 0) {
      return absl::FailedPreconditionError("an index of no rows");
    }
    return absl::OkStatus();
  }

  // Takes the tables `names` of `folder` away.
  absl::Status Import(Space space, const std::string& folder,
                      const std::vector<std::string>& names) {
    const rocksdb::ColumnFamilyDescriptor& family = families_[handles_.size()];
    rocksdb::ColumnFamilyHandle* handle = nullptr;
    rocksdb::Status status;
    const KeptReads reads;
    if (names.empty()) {
      status = db_->CreateColumnFamily(family.options, family.name, &handle);
    } else {
      rocksdb::ImportColumnFamilyOptions options;
      options.move_files = true;
      rocksdb::ExportImportFilesMetaData tables;
      tables.db_comparator_name = rocksdb::BytewiseComparator()->Name();
      for (const std::string& name : names) {
        rocksdb::LiveFileMetaData table;
        table.db_path = folder;
        // Behind a slash of RocksDB's own: the path that KeptReads knows.
        table.name = name;
        table.level = kBottomLevel;
        tables.files.push_back(std::move(table));
        CKPTREE_RETURN_IF_ERROR(
            ReadTableEnds(env_.get(), Join(folder, name)).status());
      }
      status = db_->CreateColumnFamilyWithImport(family.options, family.name,
                                                 options, tables, &handle);
    }
    if (handle != nullptr) handles_.push_back(handle);
    return ToStatus(status,
                    absl::StrFormat("taking in %d tables of `%s`", names.size(),
                                    schema::NameOf(space)));
  }

  absl::Status Close() {
    const ForkHold hold;
    for (auto* handle : handles_) {
      db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
    }
    handles_.clear();
    return ToStatus(db_->Close(), "closing " + directory_);
  }

 private:
  rocksdb::ColumnFamilyHandle* Handle(Space space) const {
    return handles_[1 + static_cast<std::size_t>(space)];
  }

  absl::Status Write() {
    if (batch_.Count() == 0) return absl::OkStatus();
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    const rocksdb::Status status = db_->Write(options, &batch_);
    batch_.Clear();
    return ToStatus(status, "writing " + directory_);
  }

  const std::string directory_;
  std::unique_ptr<rocksdb::Env> env_;
  const LogFn log_;
  std::vector<rocksdb::ColumnFamilyDescriptor> families_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::unique_ptr<CaughtDb> caught_ =
      std::make_unique<CaughtDb>(/*writes=*/true, [] {});
  rocksdb::DB* const db_ = caught_->db();
  rocksdb::WriteBatch batch_;
  std::size_t batch_room_ = 0;  // It does not grow: see RowBytesInBatch().
};

// Confined to one thread.
class Rebuilder {
 public:
  Rebuilder(const RebuildSource& source, const std::string& to,
            const Options& options, absl::FunctionRef<bool()> cancelled)
      : source_(source),
        to_(to),
        // A guard sets modes by name, and on the disk a name in memory may be
        // that of another file.
        options_(IsInMemory(options)
                     ? options
                     : Guarded(options, Guard::kWriter, nullptr)),
        cancelled_(cancelled),
        fresh_(to, options_) {}

  absl::StatusOr<RebuildReport> Run() {
    if (FileSystemOf(options_)
            ->FileExists(to_, rocksdb::IOOptions(), nullptr)
            .ok()) {
      return absl::AlreadyExistsError(absl::StrFormat("%s is there", to_));
    }
    CKPTREE_RETURN_IF_ERROR(LookAtTables());
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, to_));
    CKPTREE_RETURN_IF_ERROR(fresh_.Open());
    CKPTREE_RETURN_IF_ERROR(TakeRows());
    CKPTREE_RETURN_IF_ERROR(FindBlocks());
    CKPTREE_RETURN_IF_ERROR(fresh_.Flush());
    const std::string folder = Join(to_, kImportName);
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options_, folder));
    for (const Space space : {Space::kLeaves, Space::kChunks}) {
      CKPTREE_RETURN_IF_ERROR(TakeSegments(space, folder));
    }
    CKPTREE_RETURN_IF_ERROR(fresh_.Import(Space::kLeaves, folder, copies_));
    CKPTREE_RETURN_IF_ERROR(fresh_.Close());
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options_, folder));
    if (source_.keeps_unreadable) CKPTREE_RETURN_IF_ERROR(KeepUnreadable());
    // An import syncs no name that it gives.
    CKPTREE_RETURN_IF_ERROR(SyncDirectory(options_, to_));
    return std::move(report_);
  }

 private:
  absl::Status CheckCancelled() const {
    return cancelled_() ? absl::CancelledError("interrupted")
                        : absl::OkStatus();
  }

  // Step 1.
  absl::Status LookAtTables() {
    for (const std::string& folder :
         {source_.db_directory, source_.journal_directory}) {
      CKPTREE_RETURN_IF_ERROR(LookAtTablesOf(folder));
    }
    return absl::OkStatus();
  }

  absl::Status LookAtTablesOf(const std::string& folder) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(source_.options, folder));
    for (const std::string& name : names) {
      CKPTREE_RETURN_IF_ERROR(CheckCancelled());
      const std::string path = Join(folder, name);
      if (!name.ends_with(".sst") && !IsTable(source_.options, path)) continue;
      bool is_folder = false;
      FileSystemOf(source_.options)
          ->IsDirectory(path, rocksdb::IOOptions(), &is_folder, nullptr)
          .PermitUncheckedError();
      if (is_folder) {
        report_.unread.push_back(
            absl::StrFormat("%s is a folder, and no table", path));
        continue;
      }
      const auto bytes = FileSize(source_.options, path);
      if (bytes.ok() && *bytes == 0) continue;  // Of a crash.
      absl::StatusOr<SegmentTable> table =
          SegmentTable::Open(source_.options, path, source_.space_of);
      if (IsUnsteady(table.status())) return table.status();
      if (!table.ok()) {
        report_.unread.push_back(
            absl::StrFormat("the table cannot be read: %s",
                            std::string(table.status().message())));
        if (IsUnreadable(table.status())) unreadable_.push_back(path);
        continue;
      }
      if (!table->damage().ok()) {
        report_.notes.push_back(absl::StrFormat("%s is damaged: %s", path,
                                                table->damage().message()));
      }
      tables_[table->space()].push_back(*std::move(table));
    }
    return absl::OkStatus();
  }

  // Step 2.
  absl::Status TakeRows() {
    return source_.rows(
        [&](const RowKey& key, const RowValue& value) -> absl::Status {
          ++report_.rows;
          if (report_.rows % 4096 == 0)
            CKPTREE_RETURN_IF_ERROR(CheckCancelled());
          if (const auto* bytes = std::get_if<std::string>(&value)) {
            return fresh_.Put(key.space, key.key, *bytes);
          }
          const BlockName& name = std::get<BlockName>(value);
          CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> block,
                                   source_.find_block(key));
          if (block.has_value() && IsNamed(*block, name)) {
            return fresh_.Put(key.space, key.key, *block);
          }
          wanted_.emplace(key.key, name);
          return absl::OkStatus();
        });
  }

  static bool IsNamed(std::string_view block, const BlockName& name) {
    return block.size() == name.length && base::DigestOf(block) == name.digest;
  }

  // Step 2.
  absl::Status FindBlocks() {
    for (SegmentTable& table : tables_[Space::kSmall]) {
      if (wanted_.empty()) break;
      CKPTREE_RETURN_IF_ERROR(CheckCancelled());
      CKPTREE_ASSIGN_OR_RETURN(const auto* records, table.Records());
      for (const FoundRecord& record : *records) {
        CKPTREE_RETURN_IF_ERROR(TakeBlock(table, record));
      }
      table.Forget();
    }
    std::uint64_t damaged = 0;
    std::uint64_t missing_bytes = 0;
    for (const auto& [key, name] : wanted_) {
      // With damage in it: digests of its own tell which leaves are whole.
      CKPTREE_ASSIGN_OR_RETURN(
          std::optional<std::string> block,
          source_.find_damaged_block
              ? source_.find_damaged_block({Space::kSmall, key})
              : absl::StatusOr<std::optional<std::string>>(std::nullopt));
      const auto in_table = damaged_.find(key);
      if (!block.has_value() && in_table != damaged_.end()) {
        block = in_table->second;
      }
      if (block.has_value() && block->size() == name.length) {
        CKPTREE_RETURN_IF_ERROR(fresh_.Put(Space::kSmall, key, *block));
        ++damaged;
        ++report_.blocks;
        continue;
      }
      missing_bytes += name.length;
      report_.missing.push_back({Space::kSmall, key});
    }
    if (damaged > 0) {
      report_.notes.push_back(absl::StrFormat(
          "%d blocks of arrays of small saves are damaged, and taken along as "
          "they are",
          damaged));
    }
    if (report_.missing.empty()) return absl::OkStatus();
    // One line for all: each step tells which of its leaves they are.
    report_.losses.push_back(
        absl::StrFormat("%d blocks of arrays of small saves are nowhere, %d "
                        "bytes: they were in "
                        "the table that is gone or damaged",
                        report_.missing.size(), missing_bytes));
    return absl::OkStatus();
  }

  absl::Status TakeBlock(const SegmentTable& table, const FoundRecord& record) {
    if (record.deleted) return absl::OkStatus();
    auto found = wanted_.find(record.key);
    // What it is called may be damaged, or how long it is.
    if (found == wanted_.end() && record.proven) return absl::OkStatus();
    CKPTREE_ASSIGN_OR_RETURN(const std::string block, table.Read(record));
    if (found != wanted_.end() && block.size() == found->second.length) {
      damaged_[record.key] = block;
    }
    if (found == wanted_.end() || !IsNamed(block, found->second)) {
      found =
          std::find_if(wanted_.begin(), wanted_.end(), [&](const auto& wanted) {
            return wanted.second.length == block.size() &&
                   IsNamed(block, wanted.second);
          });
    }
    if (found == wanted_.end()) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(fresh_.Put(Space::kSmall, found->first, block));
    ++report_.blocks;
    damaged_.erase(found->first);
    wanted_.erase(found);
    return absl::OkStatus();
  }

  // Step 5.
  absl::Status KeepUnreadable() {
    for (const std::string& from : unreadable_) {
      std::string_view name = BaseName(from);
      if (name.starts_with(kUnreadableTablePrefix)) {
        name.remove_prefix(kUnreadableTablePrefix.size());
      }
      CKPTREE_RETURN_IF_ERROR(ToStatus(
          FileSystemOf(options_)->LinkFile(
              from,
              Join(to_, absl::StrFormat("%s%s", kUnreadableTablePrefix, name)),
              rocksdb::IOOptions(), nullptr),
          "keeping " + from));
    }
    return absl::OkStatus();
  }

  // Step 4.
  absl::Status TakeSegments(Space space, const std::string& folder) {
    std::vector<SegmentTable>& tables = tables_[space];
    std::sort(tables.begin(), tables.end(),
              [](const SegmentTable& a, const SegmentTable& b) {
                return a.first_key() < b.first_key();
              });
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tables.size();) {
      CKPTREE_RETURN_IF_ERROR(CheckCancelled());
      std::size_t end = i + 1;
      std::string last = tables[i].last_key();
      for (; end < tables.size() && tables[end].first_key() <= last; ++end) {
        last = std::max(last, tables[end].last_key());
      }
      const std::string name =
          absl::StrFormat("%s-%d.sst", schema::NameOf(space), names.size());
      const std::string path = Join(folder, name);
      if (end == i + 1 && tables[i].damage().ok()) {
        CKPTREE_RETURN_IF_ERROR(LinkOrCopy(options_, tables[i].path(), path));
      } else if (end == i + 2 && AreCopies(tables[i], tables[i + 1])) {
        CKPTREE_RETURN_IF_ERROR(LinkOrCopy(options_, tables[i].path(), path));
        copies_.push_back(
            absl::StrFormat("%s-%d.sst", kLeafCopiesName, copies_.size()));
        CKPTREE_RETURN_IF_ERROR(LinkOrCopy(options_, tables[i + 1].path(),
                                           Join(folder, copies_.back())));
      } else {
        const std::span<SegmentTable> together(&tables[i], end - i);
        std::vector<std::string> unproven;
        CKPTREE_RETURN_IF_ERROR(
            WriteTogether(options_, together, path, &unproven));
        if (space == Space::kChunks) {
          std::ranges::move(unproven, std::back_inserter(report_.unproven));
        }
        report_.notes.push_back(
            absl::StrFormat("written anew from %d tables: %s", together.size(),
                            together.front().path()));
      }
      names.push_back(name);
      for (; i < end; ++i) tables[i].Forget();
    }
    report_.tables += names.size();
    return fresh_.Import(space, folder, names);
  }

  // The two copies of leaf records, of which each may have damaged blocks.
  static bool AreCopies(const SegmentTable& a, const SegmentTable& b) {
    return a.space() == Space::kLeaves && a.damage().ok() && b.damage().ok() &&
           a.first_key() == b.first_key() && a.last_key() == b.last_key();
  }

  const RebuildSource& source_;
  const std::string to_;
  const Options options_;
  const absl::FunctionRef<bool()> cancelled_;
  FreshIndex fresh_;
  RebuildReport report_;
  std::map<Space, std::vector<SegmentTable>> tables_;
  std::vector<std::string> unreadable_;  // Tables.
  std::vector<std::string> copies_;      // Of leaf records, to be taken in.
  // Blocks that are still to be found.
  std::map<std::string, BlockName> wanted_;
  std::map<std::string, std::string, std::less<>> damaged_;  // Of those.
};

}  // namespace

bool IsTable(const Options& options, const std::string& path) {
  const DamagedTablesWelcome welcome;
  const absl::StatusOr<std::uint64_t> bytes = FileSize(options, path);
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  return bytes.ok() && *bytes > 0 &&
         FileSystemOf(options)
             ->NewRandomAccessFile(path, rocksdb::FileOptions(), &file, nullptr)
             .ok() &&
         TableTail(file.get(), *bytes).ReadFooter().has_value();
}

void FindIn(const JournalBlocks& blocks, RebuildSource* source) {
  const auto finding = [](const auto& known) {
    return
        [&known](
            const RowKey& key) -> absl::StatusOr<std::optional<std::string>> {
          const auto found = known.find(key.key);
          if (key.space != Space::kSmall || found == known.end()) {
            return std::nullopt;
          }
          return std::string(found->second);
        };
  };
  source->find_block = finding(blocks.whole);
  source->find_damaged_block = finding(blocks.damaged);
}

absl::StatusOr<RebuildReport> RebuildIndex(
    const RebuildSource& source, const std::string& to, const Options& options,
    absl::FunctionRef<bool()> cancelled) {
  return Rebuilder(source, AbsolutePath(to), options, cancelled).Run();
}

}  // namespace ckptree::kv
