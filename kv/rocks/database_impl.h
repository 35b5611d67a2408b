// SPDX-License-Identifier: Apache-2.0

// The state of an open database, for the files that implement it.

#ifndef CKPTREE_KV_ROCKS_DATABASE_IMPL_H_
#define CKPTREE_KV_ROCKS_DATABASE_IMPL_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/big_endian.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "kv/journal/keeper.h"
#include "kv/journal/overlay.h"
#include "kv/journal/tail.h"
#include "kv/options.h"
#include "kv/process_mark.h"
#include "kv/rocks/far_tables.h"
#include "kv/rocks/held_room.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/lost_blocks.h"
#include "kv/rocks/mapped_files.h"
#include "kv/rocks/place_guard.h"
#include "kv/rocks/spare_tables.h"
#include "kv/rocks/standing.h"
#include "kv/rocks/table_files.h"
#include "kv/rocks/table_search.h"
#include "kv/rocks/watcher.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"

namespace ckptree::kv {

// The version at the start of a key of `small`, `leaves` or `chunks`.
inline std::uint64_t VersionOfKey(std::string_view key) {
  return key.size() < sizeof(std::uint64_t)
             ? 0
             : base::BigEndianReader(key).Read<std::uint64_t>();
}

struct Database::Impl {
  Impl(std::string directory_in, const Options& options_in, Mode mode_in);

  // The instance to read from; kFailedPrecondition after Close() and in a
  // forked child.
  absl::StatusOr<std::shared_ptr<Instance>> Reading() const;
  // The same for writing: also refused when reading only, while the check of an
  // open looks, and by a dead handle.
  absl::StatusOr<std::shared_ptr<Instance>> Writing() const;
  // database.cc: the files of the second copy of `leaves`, or all others that
  // hold segments.
  absl::StatusOr<std::vector<LiveFile>> ListFiles(bool copies) const;
  void AddFarFiles(const Instance& open, std::vector<LiveFile>* live) const;
  // Of kChunks, in the files here.
  bool IsIn(const Instance& open, std::string_view key) const;
  // database_follow.cc: a block of kChunks could not be read: true where it may
  // be in another place by now, and is to be looked for again. Fails where
  // there is no memory to look; the next that looks for it does then.
  absl::StatusOr<bool> LooksAgain();
  // database_follow.cc: a table that `met`, an instance of a reader, had not
  // opened is gone: true where the one that is read from now may have another
  // in its place. Fails as LooksAgain().
  absl::StatusOr<bool> LooksForTables(const Instance* met);
  // What rows are read from, of one moment.
  struct RowView {
    std::shared_ptr<Instance> instance;
    std::shared_ptr<const Overlay> overlay;  // May be null: none.
  };
  // As Reading(), with the overlay.
  absl::StatusOr<RowView> ReadingRows() const;
  void Replace(std::shared_ptr<Instance> instance, bool is_following,
               std::shared_ptr<const Overlay> overlay = nullptr);
  // Over the instance there is; `changed`: the keys of `records` that are
  // other ones in it.
  void ReplaceOverlay(std::shared_ptr<const Overlay> overlay,
                      std::vector<std::string> changed);
  // All rows may be other ones.
  void CountView() ABSL_EXCLUSIVE_LOCKS_REQUIRED(instance_mutex);

  // database_follow.cc: opens for reading, beside a writer or without one.
  absl::Status OpenForReading(OpenReport* found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_mutex);
  // database_follow.cc: kFailedPrecondition where `standing` is of another
  // store than the one that was opened, or of a copy that lacks commits seen
  // here.
  absl::Status CheckSameStore(const Standing& standing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_mutex);
  // database_follow.cc: behind it. Where rows name tables that the index does
  // not know, a new one in memory. Not beside a writer, who looked for that.
  absl::Status MendForReading(const Database& database);
  // database_open.cc: the steps after the lock was taken.
  absl::Status OpenForWriting(const Database& database, CheckFn check);
  // database_follow.cc: the live writer, if there is one.
  absl::StatusOr<std::optional<LockHolder>> ProbeWriter() const;
  // database_open.cc: kNotFound, kFailedPrecondition where it cannot be opened.
  absl::StatusOr<StoreDirectory> LookAtStore() const;
  // database.cc.
  absl::StatusOr<std::uint64_t> FileBytes(bool settled) const;
  // database_open.cc: the journal writes `tip` and `reserve` anew. Tables that
  // have these names get others, by which a new index finds them, until it has
  // them.
  absl::Status PutTablesAside() const;
  absl::Status RemoveTablesAside() const;
  // database_open.cc: an index from rows and tables; the damaged one stays
  // beside it.
  absl::Status MakeIndexAnew(const Standing& standing);
  // database_open.cc: into `report`.
  void ReportJournal(const Standing& standing);
  // database_open.cc: what the writer's journal begins with.
  KeeperContext ContextOf(const Standing& standing);
  // database_commit.cc: one record, and the index.
  CommitResult WriteCommit(Instance& instance, CommitKind kind,
                           std::uint64_t version, const WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex);
  // database_commit.cc: rows in memory see the commit, too.
  void AddToOverlay(const WriteBatch& batch);
  // On the disk of the store.
  absl::StatusOr<std::uint64_t> FreeBytes() const;
  // database_commit.cc: kResourceExhausted where `what` may take more than is
  // free, the reserve included: RocksDB ends a handle that runs out of room.
  absl::Status CheckRoom(std::uint64_t wanted, std::string_view what) const;
  // database_commit.cc: for the keeper.
  absl::Status FlushIndex() ABSL_LOCKS_EXCLUDED(flush_mutex);
  absl::Status FlushSpace(Instance& open, schema::Space space)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(flush_mutex);
  absl::Status KeepBlocks(const JournalBlocks& blocks);
  absl::Status ScanIndex(
      absl::FunctionRef<absl::Status(const ChainPoint&)> begin,
      absl::FunctionRef<absl::Status(const RowKey&, const RowValue&)> sink);
  // database_follow.cc: a read met damage in the index: from now on rows are
  // read from memory, where the journal has them all. True where they are, and
  // the read is to be tried again.
  bool ReadRowsFromJournal(const absl::Status& met);
  // database_follow.cc: tells of it once; the next open for writing makes the
  // index anew.
  void NoteIndexDamage(std::string_view what);
  // database_read.cc; `unanswered` is set where an object store that may have
  // it gave no answer.
  absl::StatusOr<Value> Search(
      schema::Space space, std::string_view key,
      absl::FunctionRef<bool(std::string_view value)> accept, bool spares,
      bool* unanswered);
  // database_follow.cc: a block of `small`, where a record of the journal still
  // has it.
  std::optional<std::string> BlockInJournal(std::string_view key);
  // The same, which notes that the index is damaged.
  std::optional<Value> ValueInJournal(
      std::string_view key,
      absl::FunctionRef<bool(std::string_view value)> accept);
  // database_follow.cc: opens the index anew where it cannot have the files of
  // `version` yet. kResourceExhausted: it could not; what is not found is not
  // known to be lost.
  absl::Status CatchUp(std::uint64_t version);
  // database_follow.cc: as MakeIndexAnew, for a process that only reads.
  absl::Status MakeIndexInMemory(Standing* standing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_mutex);
  // database_follow.cc: extends the rows by what the journal has behind `seen`.
  // An error: all has to be opened anew.
  absl::Status SeeNewCommits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_mutex);

  std::string DbDirectory() const { return Join(directory, kDbName); }
  // `options` for a writer, with a guard that has met no failure yet.
  Options GuardedForWriting();

  const ProcessMark mark;
  const std::string directory;  // Absolute.
  const Options options;        // As the caller gave them.
  const Mode mode;
  const std::shared_ptr<Watcher> watcher;
  const std::shared_ptr<StorePlace> place = std::make_shared<StorePlace>();
  const std::shared_ptr<HeldRoom> flush_room;
  // The caller's options with the guard of the role.
  Options reader_options;
  Options writer_options;
  std::shared_ptr<StoreLock> lock;  // kReadWrite only.
  OpenReport report;

  mutable absl::Mutex instance_mutex;
  std::shared_ptr<Instance> instance ABSL_GUARDED_BY(instance_mutex);
  std::shared_ptr<const Overlay> overlay ABSL_GUARDED_BY(instance_mutex);
  bool following ABSL_GUARDED_BY(instance_mutex) = false;
  std::atomic<bool> writable = false;
  std::atomic<std::uint64_t> newest_ordinal = 0;
  std::atomic<std::uint64_t> durable_ordinal = 0;
  std::atomic<std::uint64_t> session = 0;
  std::atomic<std::uint64_t> views = 0;  // Counts what readers are shown.
  // What each view since `changes_from` changed, oldest first.
  struct ViewChanges {
    std::uint64_t view = 0;
    std::vector<std::string> keys;  // Of `records`.
  };
  std::deque<ViewChanges> view_changes ABSL_GUARDED_BY(instance_mutex);
  std::uint64_t changes_from ABSL_GUARDED_BY(instance_mutex) = 0;
  std::size_t changed_keys ABSL_GUARDED_BY(instance_mutex) = 0;

  // All files are others now, or may be.
  void ForgetFiles() {
    mapped->Forget();
    table_files->Forget();
    table_search.Forget();
  }
  // Some of this instance's came or went.
  void NoteFilesChanged() {
    mapped->NoteChange();
    table_files->NoteChange();
    table_search.Forget();
  }

  // Shared with what RocksDB's background work tells.
  const std::shared_ptr<MappedFiles> mapped = std::make_shared<MappedFiles>();
  const std::shared_ptr<TableFiles> table_files;
  TableSearch table_search;
  // Null: all segments are in the directory.
  const std::unique_ptr<FarTables> far_tables;
  const std::unique_ptr<SpareTables> spare_tables;  // Null: none.
  std::shared_ptr<LostBlocks> lost_blocks = LostBlocks::Of(directory);
  bool AllFar() const { return far_tables != nullptr && options.all_far; }
  // Who has the block `key` of `space`; null: the directory.
  FarTables* FarOf(schema::Space space, std::string_view key) const {
    if (far_tables == nullptr) return nullptr;
    const bool has =
        options.all_far
            ? space == schema::Space::kLeaves || space == schema::Space::kChunks
            : space == schema::Space::kChunks && far_tables->Has(space, key);
    return has ? far_tables.get() : nullptr;
  }

  // Before instance_mutex. Held over I/O: one refresh, one change of the set of
  // files, one commit at a time.
  absl::Mutex refresh_mutex;
  JournalTail tail ABSL_GUARDED_BY(refresh_mutex);
  ChainPoint seen ABSL_GUARDED_BY(refresh_mutex);
  // Of the store that a reader opened; nothing before.
  std::optional<std::array<std::uint8_t, 16>> seen_uuid
      ABSL_GUARDED_BY(refresh_mutex);
  // Device and inode of the directory then.
  std::optional<std::pair<dev_t, ino_t>> seen_place
      ABSL_GUARDED_BY(refresh_mutex);
  std::int64_t seen_pid ABSL_GUARDED_BY(refresh_mutex) = 0;  // The writer's.
  // The highest version whose files the instance of a reader surely has.
  std::atomic<std::uint64_t> instance_version = 0;
  std::atomic<std::uint64_t> newest_version = 0;
  // The commit that it had seen when it looked again last.
  std::optional<std::uint64_t> looked_again ABSL_GUARDED_BY(refresh_mutex);
  // When the folder of the tables had changed last as it was looked at for one
  // that is gone.
  std::optional<std::int64_t> looked_for_tables ABSL_GUARDED_BY(refresh_mutex);
  absl::Mutex files_mutex;
  // Behind all others, but for instance_mutex. Held over I/O: one flush at a
  // time has its room.
  absl::Mutex flush_mutex;
  absl::Mutex commit_mutex;
  // Set before `writable` is.
  std::unique_ptr<JournalKeeper> keeper;
  // The damaged index was told of, and nobody can do more.
  std::atomic<bool> rows_in_memory = false;
  std::string index_damage ABSL_GUARDED_BY(instance_mutex);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_DATABASE_IMPL_H_
