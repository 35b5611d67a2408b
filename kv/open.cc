// Database::Open for the writer. The steps:
//
//   1. Lock.
//   2. The directory is sane.
//   3. Open read-only: a read-write open of a damaged store deletes files.
//   4. HEAD and the chain of commits.
//   5. The caller's check.
//   6. Open read-write, never creating, and find what step 4 found.
//   7. HEAD says what was found: a commit ahead of it is acknowledged now.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kv/commit_chain.h"
#include "kv/database.h"
#include "kv/database_impl.h"
#include "kv/file_system.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/options.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"

namespace ckptree::kv {

absl::StatusOr<StoreDirectory> Database::Impl::LookAtStore() const {
  CKPTREE_ASSIGN_OR_RETURN(StoreDirectory found, LookAt(directory));
  if (found.creating) {
    // A creation that was acknowledged removed its mark first, and no commit
    // follows before that is durable. A mark beside later commits is not one.
    const absl::StatusOr<HeadSlot> slot =
        HeadFile::Read(reader_options, directory);
    if (!slot.ok() || slot->ordinal <= 1) {
      // Not a store yet: whoever would create a missing one may go on.
      return absl::NotFoundError(absl::StrFormat(
          "no store in %s: its creation was not finished; create it again",
          directory));
    }
    found.warnings.push_back("removed the mark of an unfinished creation");
  }
  if (!found.exists || (!found.head && !found.db)) {
    return absl::NotFoundError(absl::StrFormat("no store in %s", directory));
  }
  return found;
}

absl::Status Database::Impl::ReadHead(OpenReport* found) const {
  if (options.ignore_head) {
    found->head_missing = true;
    return absl::OkStatus();
  }
  const absl::StatusOr<HeadSlot> slot =
      HeadFile::Read(reader_options, directory);
  found->head_missing = !slot.ok();
  if (slot.ok()) {
    found->head = *slot;
    return absl::OkStatus();
  }
  if (absl::IsNotFound(slot.status()) || absl::IsDataLoss(slot.status())) {
    found->warnings.emplace_back(slot.status().message());
    return absl::OkStatus();
  }
  return slot.status();
}

absl::Status Database::Impl::OpenForWriting(const Database& database,
                                            CheckFn check) {
  // Step 2.
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAtStore());
  report.notes = found.warnings;
  report.highest_version = found.highest_staged_version;

  // Step 3.
  CKPTREE_ASSIGN_OR_RETURN(
      std::shared_ptr<Instance> reading,
      Instance::Open(Role::kReadOnly, DbDirectory(), reader_options, nullptr,
                     lock));

  // Step 4.
  CKPTREE_RETURN_IF_ERROR(ReadHead(&report));
  CKPTREE_RETURN_IF_ERROR(
      CheckChain(*reading, /*beside_writer=*/false, &report));
  CKPTREE_RETURN_IF_ERROR(report.read_only_because);
  report.copied = report.head.device != lock->device() ||
                  report.head.inode != lock->inode();
  CKPTREE_ASSIGN_OR_RETURN(const ChainTip checked, ReadTip(*reading));
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t oldest,
                           OldestOrdinal(*reading));

  // Step 5.
  Replace(std::move(reading), /*is_following=*/false);
  const absl::Status verdict = check(database, report);
  Replace(nullptr, /*is_following=*/false);
  CKPTREE_RETURN_IF_ERROR(verdict);

  // Step 6.
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Instance> writing,
      Instance::Open(Role::kReadWrite, DbDirectory(), writer_options, watcher,
                     lock));
  // With a sequence of 0, a compaction beside a snapshot would drop every key
  // that was adopted. Creation wrote a record first, so it cannot be.
  if (writing->db()->GetLatestSequenceNumber() == 0) {
    return absl::DataLossError(
        absl::StrFormat("%s has never been written to", directory));
  }
  CKPTREE_ASSIGN_OR_RETURN(const ChainTip tip_now, ReadTip(*writing));
  if (tip_now.ordinal != checked.ordinal || tip_now.hash != checked.hash) {
    return absl::DataLossError(absl::StrFormat(
        "commit %d was there when read, and commit %d when opened for writing",
        checked.ordinal, tip_now.ordinal));
  }

  // Step 7.
  if (found.creating) {
    CKPTREE_RETURN_IF_ERROR(
        RemoveFile(writer_options, Join(directory, kCreatingName)));
  }
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(writer_options, Join(directory, kStagingName)));
  // Also what a creation left unsynced when it failed at its very end.
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(writer_options, directory));
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<HeadFile> head_file,
                           HeadFile::Open(writer_options, directory));
  HeadSlot slot = head_file->slot();
  slot.ordinal = tip_now.ordinal;
  slot.hash = tip_now.hash;
  slot.version_ceiling = report.highest_version;
  slot.device = lock->device();
  slot.inode = lock->inode();
  if (report.copied) ++slot.incarnation;
  CKPTREE_RETURN_IF_ERROR(head_file->Write(slot));
  report.head = head_file->slot();  // The incarnation is now this one.

  // Recovery has written all that the log held to files.
  watcher->Start(tip_now.ordinal);
  Replace(writing, /*is_following=*/false);
  StartWriting(tip_now, oldest, std::move(head_file));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& directory, const Options& options, Mode mode,
    CheckFn check) {
  std::unique_ptr<Database> database(new Database(std::make_unique<Impl>(
      AbsolutePath(directory), options, mode)));
  Impl& impl = *database->impl_;
  if (mode == Mode::kRead) {
    {
      const absl::MutexLock lock(&impl.refresh_mutex);
      CKPTREE_RETURN_IF_ERROR(impl.OpenForReading(&impl.report));
    }
    if (!options.forensic) {
      CKPTREE_RETURN_IF_ERROR(check(*database, impl.report));
    }
    return database;
  }
  if (options.forensic || options.ignore_head || options.locked) {
    return absl::InvalidArgumentError("an open of this kind only reads");
  }
  // Before the lock, which would leave its file where there is no store.
  CKPTREE_RETURN_IF_ERROR(impl.LookAtStore().status());
  // Step 1.
  CKPTREE_ASSIGN_OR_RETURN(
      impl.lock, StoreLock::Acquire(impl.directory, options.lock_wait_ms));
  CKPTREE_RETURN_IF_ERROR(impl.OpenForWriting(*database, check));
  return database;
}

}  // namespace ckptree::kv
