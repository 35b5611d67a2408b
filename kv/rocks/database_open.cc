// SPDX-License-Identifier: Apache-2.0

// Database::Open for the writer. The steps:
//
//   1. Lock.
//   2. The directory is sane.
//   3. Open the index read-only: a read-write open of a damaged one deletes
//      files. Read the journal from where the index ends.
//   4. A damaged index is made anew: rows from the journal, tables by a second
//      name.
//   5. The caller's check.
//   6. Open read-write, never creating, and apply what the index does not have
//      yet - after the first file of the journal of this session is durable,
//      for the last record may only have been in the page cache.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/journal/keeper.h"
#include "kv/journal/reserve.h"
#include "kv/options.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/marker.h"
#include "kv/rocks/standing.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"

namespace ckptree::kv {
namespace {

// Where a crash left only the new index under its own name, it gets the name
// that it was made for.
absl::Status FinishSwap(const Options& options, const std::string& directory,
                        const StoreDirectory& found) {
  const std::string made = Join(directory, kNewDbName);
  if (!found.new_db) return absl::OkStatus();
  if (found.db) return RemoveTree(options, made);
  CKPTREE_RETURN_IF_ERROR(RenameFile(options, made, Join(directory, kDbName)));
  return SyncDirectory(options, directory);
}

// Another name of a file of the journal that is a table.
std::string Aside(const std::string& path) { return path + ".sst"; }

// RocksDB makes an empty log at each open; nothing was ever written to one.
absl::Status RemoveLogs(const Options& options, const std::string& db) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, db));
  for (const std::string& name : names) {
    if (!name.ends_with(".log")) continue;
    CKPTREE_RETURN_IF_ERROR(RemoveFile(options, Join(db, name)));
  }
  return absl::OkStatus();
}

// Of an index that lacks nothing without them.
absl::Status RemoveUnreadableTables(const Options& options,
                                    const std::string& db) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, db));
  for (const std::string& name : names) {
    if (!name.starts_with(kUnreadableTablePrefix)) continue;
    CKPTREE_RETURN_IF_ERROR(RemoveFile(options, Join(db, name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoreDirectory> Database::Impl::LookAtStore() const {
  CKPTREE_ASSIGN_OR_RETURN(StoreDirectory found, LookAt(directory));
  if (found.creating) {
    // A creation that was acknowledged removed its mark first, and no commit
    // follows before that is durable. A mark beside later commits is not one.
    CKPTREE_ASSIGN_OR_RETURN(const bool goes_on,
                             GoesOnBesideMark(reader_options, directory));
    if (!goes_on) {
      // Not a store yet: whoever would create a missing one may go on.
      if (lock == nullptr) {
        CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> creator,
                                 ProbeWriter());
        if (creator.has_value()) {
          return absl::NotFoundError(absl::StrFormat(
              "no store in %s yet: pid %d on host %s is creating it; open it "
              "again in a moment",
              directory, creator->pid, creator->host));
        }
      }
      return absl::NotFoundError(absl::StrFormat(
          "no store in %s: its creation was not finished; create it again",
          directory));
    }
    found.warnings.push_back("there is the mark of an unfinished creation");
  }
  if (!found.exists || (!found.journal && !found.db && !found.head)) {
    return absl::NotFoundError(absl::StrFormat("no store in %s", directory));
  }
  if (found.journal) return found;
  if (found.head) {
    // A repository of git has that name, too. No store is made beside it: it
    // would go with the store.
    return absl::FailedPreconditionError(
        found.db || found.new_db
            ? absl::StrFormat(
                  "the store in %s was made by an engine without a journal, of "
                  "format 0 before it: read it with that engine",
                  directory)
            : absl::StrFormat("%s has a file HEAD, as a repository of git has, "
                              "and no store: take another directory",
                              directory));
  }
  if (!HasFilesOfStore(reader_options, directory)) {
    return absl::NotFoundError(absl::StrFormat(
        "no store in %s: its folder '%s' is of others", directory, kDbName));
  }
  return absl::DataLossError(absl::StrFormat(
      "the store in %s has lost its journal: `ckptree repair` makes it anew "
      "from the index",
      directory));
}

absl::Status Database::Impl::PutTablesAside() const {
  const std::string journal = Join(directory, kJournalName);
  for (const std::string_view name : {kTipName, kReserveName}) {
    const std::string path = Join(journal, name);
    if (!IsTable(reader_options, path)) continue;
    CKPTREE_RETURN_IF_ERROR(RenameFile(writer_options, path, Aside(path)));
    CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, journal));
  }
  return absl::OkStatus();
}

absl::Status Database::Impl::RemoveTablesAside() const {
  const std::string journal = Join(directory, kJournalName);
  for (const std::string_view name : {kTipName, kReserveName}) {
    CKPTREE_RETURN_IF_ERROR(
        RemoveFile(writer_options, Aside(Join(journal, name))));
  }
  return absl::OkStatus();
}

absl::Status Database::Impl::MakeIndexAnew(const Standing& standing) {
  watcher->Log(Severity::kWarning,
               absl::StrFormat("%s: the index is damaged and is made anew: %s",
                               directory, standing.problem));
  const std::string made = Join(directory, kNewDbName);
  const std::string damaged = Join(
      directory,
      absl::StrFormat("%s%d", kDamagedDbPrefix, absl::GetCurrentTimeNanos()));
  // The writer's guard would hold back what it does not know.
  CKPTREE_RETURN_IF_ERROR(RemoveTree(writer_options, made));
  CKPTREE_ASSIGN_OR_RETURN(const RebuildReport rebuilt,
                           MakeIndex(reader_options, directory, DbDirectory(),
                                     standing, made, writer_options));
  for (const auto* lines : {&rebuilt.unread, &rebuilt.losses}) {
    report.warnings.insert(report.warnings.end(), lines->begin(), lines->end());
  }
  report.unproven = rebuilt.unproven;
  for (const std::string& note : rebuilt.notes) {
    watcher->Log(Severity::kInfo, note);
  }
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, made));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, directory));
  const absl::StatusOr<std::uint64_t> there =
      FileSize(writer_options, DbDirectory());
  absl::Status exchanged = absl::UnimplementedError("there is none");
  if (there.ok()) {
    // First by the name that the damaged one will have: what is called db.new
    // beside a db is removed by the next open.
    CKPTREE_RETURN_IF_ERROR(RenameFile(writer_options, made, damaged));
    exchanged = ExchangeFiles(writer_options, DbDirectory(), damaged);
    if (!exchanged.ok()) {
      CKPTREE_RETURN_IF_ERROR(RenameFile(writer_options, damaged, made));
    }
  }
  if (absl::IsUnimplemented(exchanged)) {
    // A crash in between leaves db.new alone: the next open goes on.
    if (there.ok()) {
      CKPTREE_RETURN_IF_ERROR(
          RenameFile(writer_options, DbDirectory(), damaged));
    }
    CKPTREE_RETURN_IF_ERROR(RenameFile(writer_options, made, DbDirectory()));
  } else {
    CKPTREE_RETURN_IF_ERROR(exchanged);
  }
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, directory));
  return RemoveFile(writer_options,
                    Join(Join(directory, kJournalName), kRebuildName));
}

KeeperContext Database::Impl::ContextOf(const Standing& standing) {
  const JournalContent& journal = standing.journal;
  KeeperContext context;
  context.options = writer_options;
  context.directory = directory;
  context.preface.session = journal.highest_session + 1;
  context.preface.incarnation = report.incarnation;
  context.preface.uuid = report.uuid;
  context.preface.device = lock->device();
  context.preface.inode = lock->inode();
  context.preface.version_ceiling = report.highest_version;
  context.preface.engine = CKPTREE_VERSION;
  context.tip = journal.tip;
  if (const auto last = journal.records.find(journal.tip.ordinal);
      last != journal.records.end()) {
    context.last = last->second;
  }
  context.next_file = journal.highest_file + 1;
  context.rows = standing.rows;
  for (const JournalFileId& file : journal.files) {
    if (file.copy != Copy::kA) continue;
    ++context.journal_files;
    const absl::StatusOr<std::uint64_t> bytes =
        FileSize(reader_options, Join(Join(directory, kJournalName),
                                      JournalFileName(file.copy, file.file)));
    if (bytes.ok()) context.journal_bytes += *bytes;
  }
  context.mend = !standing.damage.empty() || !journal.ragged.empty();
  context.sealed = journal.sealed;
  context.flush = [this] { return FlushIndex(); };
  context.keep_blocks = [this](const JournalBlocks& blocks) {
    return KeepBlocks(blocks);
  };
  context.scan = [this](auto begin, auto sink) {
    return ScanIndex(begin, sink);
  };
  return context;
}

void Database::Impl::ReportJournal(const Standing& standing) {
  const JournalContent& journal = standing.journal;
  report.uuid = journal.newest.uuid;
  report.ordinal = journal.tip.ordinal;
  report.copied = journal.newest.device != lock->device() ||
                  journal.newest.inode != lock->inode();
  report.incarnation = journal.newest.incarnation + (report.copied ? 1 : 0);
  report.highest_version =
      std::max(report.highest_version, journal.version_ceiling);
}

absl::Status Database::Impl::OpenForWriting(const Database& database,
                                            CheckFn check) {
  // Step 2.
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAtStore());
  report.notes = found.warnings;
  report.highest_version = found.highest_staged_version;
  CKPTREE_RETURN_IF_ERROR(FinishSwap(writer_options, directory, found));

  // Step 3.
  CKPTREE_ASSIGN_OR_RETURN(
      Standing standing,
      LookAtStanding(reader_options, directory, Role::kReadOnly,
                     /*beside_writer=*/false, /*all_files=*/true));
  const std::string rebuild_note =
      Join(Join(directory, kJournalName), kRebuildName);
  std::string problem = standing.problem;
  if (problem.empty() && FileSize(reader_options, rebuild_note).ok()) {
    problem = "a read met damage in it";
  }
  if (problem.empty()) {
    Replace(standing.index, /*is_following=*/false, standing.overlay);
    const absl::StatusOr<bool> whole = options.index_is_whole
                                           ? options.index_is_whole(database)
                                           : absl::StatusOr<bool>(true);
    if (absl::IsDataLoss(whole.status())) {
      problem = std::string(whole.status().message());
    } else {
      CKPTREE_RETURN_IF_ERROR(whole.status());
    }
    if (whole.ok() && !*whole) {
      CKPTREE_ASSIGN_OR_RETURN(const bool differ,
                               TablesDiffer(reader_options, *standing.index));
      if (differ) problem = "it does not know all tables, or some are missing";
    } else if (whole.ok() && options.index_is_whole) {
      CKPTREE_RETURN_IF_ERROR(
          RemoveUnreadableTables(writer_options, DbDirectory()));
    }
    if (rows_in_memory.exchange(false)) problem = "a read met damage in it";
    Replace(nullptr, /*is_following=*/false);
  }
  CKPTREE_RETURN_IF_ERROR(standing.lost);

  // A new one is written there.
  if (const std::string& name = standing.journal.in_tip; !name.empty()) {
    const std::string journal = Join(directory, kJournalName);
    CKPTREE_RETURN_IF_ERROR(RenameFile(writer_options, Join(journal, kTipName),
                                       Join(journal, name)));
    CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, journal));
  }

  // Step 4.
  if (!problem.empty()) {
    standing.index.reset();
    if (standing.problem.empty()) {
      CKPTREE_RETURN_IF_ERROR(ReadAllRows(reader_options, directory, problem,
                                          /*beside_writer=*/false, &standing));
    }
    CKPTREE_RETURN_IF_ERROR(standing.lost);
    CKPTREE_RETURN_IF_ERROR(PutTablesAside());
    // The new index counts the last record, which may only have been in the
    // page cache.
    ReportJournal(standing);
    keeper = std::make_unique<JournalKeeper>(ContextOf(standing));
    CKPTREE_RETURN_IF_ERROR(keeper->Begin());
    CKPTREE_RETURN_IF_ERROR(MakeIndexAnew(standing));
    CKPTREE_RETURN_IF_ERROR(RemoveTablesAside());
    const std::vector<std::string> damage = standing.damage;
    CKPTREE_ASSIGN_OR_RETURN(
        standing, LookAtStanding(reader_options, directory, Role::kReadOnly,
                                 /*beside_writer=*/false));
    if (standing.index == nullptr) {
      return absl::UnknownError(absl::StrFormat(
          "the index of %s was made anew, and is damaged again when it is "
          "read: %s. The disk, its cable or the memory of this machine may "
          "fail: try again, or on another machine",
          directory, standing.problem));
    }
    standing.damage = damage;
  }
  report.mended = standing.damage;
  report.warnings.insert(report.warnings.end(), standing.damage.begin(),
                         standing.damage.end());
  if (keeper == nullptr) ReportJournal(standing);
  const JournalContent& journal = standing.journal;
  report.highest_version =
      std::max(report.highest_version, HighestVersionInFiles(*standing.index));

  // Step 5.
  Replace(standing.index, /*is_following=*/false, standing.overlay);
  standing.index.reset();
  const absl::Status verdict = check(database, report);
  Replace(nullptr, /*is_following=*/false);
  // Its next reads meet the damage again.
  rows_in_memory = false;
  CKPTREE_RETURN_IF_ERROR(verdict);

  // Step 6.
  CKPTREE_RETURN_IF_ERROR(RemoveLogs(writer_options, DbDirectory()));
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<Instance>> {
    CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Instance> opened,
                             Instance::Open(Role::kReadWrite, DbDirectory(),
                                            writer_options, watcher, lock));
    // RocksDB opens without some of what it writes, and would commit nothing.
    CKPTREE_RETURN_IF_ERROR(watcher->health());
    return opened;
  };
  absl::StatusOr<std::shared_ptr<Instance>> writing = open();
  if (!writing.ok()) {
    const absl::StatusOr<std::uint64_t> free = database.FreeBytes();
    if (free.ok() && *free < kReserveBytes &&
        GiveReserve(writer_options, directory)) {
      // It reads anew which files there are: what the guard keeps, and does not
      // tell of, was of the open that failed.
      watcher->Pardon();
      writer_options = GuardedForWriting();
      writing = open();
    } else if ((absl::IsDataLoss(writing.status()) ||
                absl::IsUnknown(writing.status())) &&
               watcher->health().ok()) {
      // The index was well when it was looked at. A read of it may have given
      // other bits, or failed; no write did.
      writer_options = GuardedForWriting();
      writing = open();
    }
  }
  CKPTREE_RETURN_IF_ERROR(writing.status());
  if (keeper == nullptr) {
    keeper = std::make_unique<JournalKeeper>(ContextOf(standing));
  }
  if (standing.behind() || !standing.damage.empty() ||
      !journal.ragged.empty()) {
    CKPTREE_RETURN_IF_ERROR(keeper->Begin());
  }
  if (standing.behind()) {
    CKPTREE_ASSIGN_OR_RETURN(const Overlay::Changes changes,
                             ChangesOverIndex(journal, standing.records.ordinal,
                                              standing.small.ordinal));
    std::vector<IndexChange> list;
    for (const auto& [key, value] : changes) {
      list.push_back({key.space, key.key, value});
    }
    CKPTREE_RETURN_IF_ERROR(ApplyToIndex(**writing, list, journal.tip));
  }
  // With a sequence of 0, a compaction beside a snapshot would drop every key
  // that was adopted. Creation wrote rows to a file first, so it cannot be.
  if ((*writing)->db()->GetLatestSequenceNumber() == 0) {
    return absl::DataLossError(
        absl::StrFormat("%s has never been written to", directory));
  }
  if (found.creating) {
    CKPTREE_RETURN_IF_ERROR(
        RemoveFile(writer_options, Join(directory, kCreatingName)));
  }
  if (found.fetching) {
    CKPTREE_RETURN_IF_ERROR(
        RemoveTree(writer_options, Join(directory, kFetchingName)));
  }
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(writer_options, Join(directory, kStagingName)));
  // A crash may have left it. No flush runs yet.
  CKPTREE_RETURN_IF_ERROR(RemoveFile(writer_options, flush_room->path()));
  // Also what a creation left unsynced when it failed at its very end.
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, directory));
  Replace(*writing, /*is_following=*/false);
  newest_ordinal = journal.tip.ordinal;
  session = journal.highest_session + 1;
  writable = true;
  watcher->Opened();
  keeper->Ready();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& directory, const Options& options, Mode mode,
    CheckFn check) {
  std::unique_ptr<Database> database(new Database(
      std::make_unique<Impl>(AbsolutePath(directory), options, mode)));
  Impl& impl = *database->impl_;
  if (mode != Mode::kReadWrite) {
    {
      const absl::MutexLock lock(&impl.refresh_mutex);
      CKPTREE_RETURN_IF_ERROR(impl.OpenForReading(&impl.report));
    }
    CKPTREE_RETURN_IF_ERROR(impl.MendForReading(*database));
    if (mode != Mode::kReadSalvaged) {
      CKPTREE_RETURN_IF_ERROR(check(*database, impl.report));
    }
    return database;
  }
  // Before the lock, which would leave its file where there is no store.
  CKPTREE_RETURN_IF_ERROR(impl.LookAtStore().status());
  // Step 1.
  CKPTREE_ASSIGN_OR_RETURN(
      impl.lock, StoreLock::Acquire(impl.directory, options.lock_wait_ms,
                                    options.permissions, options.brief));
  impl.place->Watch(impl.lock);
  CKPTREE_RETURN_IF_ERROR(impl.OpenForWriting(*database, check));
  return database;
}

}  // namespace ckptree::kv
