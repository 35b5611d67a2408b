// Database::Create. The steps:
//
//   1. The directory, its name durable in its parent.
//   2. Lock; look again: only one creation goes on from here.
//   3. CREATING, durable: until it is gone there is no store, and whatever lies
//      beside it was never acknowledged.
//   4. Remove what an interrupted creation left.
//   5. staging and the database.
//   6. The store record, synced, before anything else: a database that has only
//      ever adopted files loses them to its first compaction.
//   7. The first commit.
//   8. HEAD.
//   9. Remove CREATING, durably. Acknowledged after that.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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
#include "kv/status.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// OK where a store may be made: nothing is there, or only what an interrupted
// creation left. A lost HEAD alone never makes a store look unfinished.
absl::Status MayCreate(const std::string& directory, const Options& options) {
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(directory));
  if (found.Vacant()) return absl::OkStatus();
  const absl::Status exists = absl::AlreadyExistsError(
      absl::StrFormat("there is a store in %s", directory));
  if (!found.creating && (found.head || found.db)) return exists;
  if (!found.foreign.empty() || !found.creating) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is not empty: it has %s", directory,
        found.foreign.empty() ? std::string("parts of a store")
                              : found.foreign.front()));
  }
  // No commit is acknowledged while CREATING is there, so a HEAD beyond the
  // first one belongs to a store that somebody put the file into.
  const absl::StatusOr<HeadSlot> slot = HeadFile::Read(options, directory);
  if (slot.ok() && slot->ordinal > 1) return exists;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Create(
    const std::string& directory, const Options& options, std::string_view uuid,
    std::string_view store_key, std::string_view store_value,
    WriteBatch batch) {
  HeadSlot slot;
  if (uuid.size() != slot.uuid.size()) {
    return absl::InvalidArgumentError("a uuid has 16 bytes");
  }
  std::copy(uuid.begin(), uuid.end(), slot.uuid.begin());
  std::unique_ptr<Database> database(new Database(std::make_unique<Impl>(
      AbsolutePath(directory), options, Mode::kReadWrite)));
  Impl& impl = *database->impl_;
  const Options& files = impl.writer_options;

  // Step 1.
  CKPTREE_RETURN_IF_ERROR(MayCreate(impl.directory, files));
  CKPTREE_RETURN_IF_ERROR(MakeDirectory(files, impl.directory));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(
      files, std::filesystem::path(impl.directory).parent_path().string()));

  // Step 2.
  CKPTREE_ASSIGN_OR_RETURN(
      impl.lock, StoreLock::Acquire(impl.directory, options.lock_wait_ms));
  CKPTREE_RETURN_IF_ERROR(MayCreate(impl.directory, files));

  // Step 3.
  const std::string creating = Join(impl.directory, kCreatingName);
  CKPTREE_RETURN_IF_ERROR(WriteFile(files, creating, "not finished\n"));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));

  // Step 4.
  for (const std::string_view name : {kHeadName, kHeadTemporaryName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveFile(files, Join(impl.directory, name)));
  }
  for (const std::string_view name : {kDbName, kStagingName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveTree(files, Join(impl.directory, name)));
  }

  // Step 5.
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(files, Join(impl.directory, kStagingName)));
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Instance> instance,
      Instance::Open(Role::kCreate, impl.DbDirectory(), files, impl.watcher,
                     impl.lock));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));

  // Step 6.
  rocksdb::WriteOptions synced;
  synced.sync = true;
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(instance->db()->Put(synced,
                                   instance->family(schema::Space::kRecords),
                                   store_key, store_value),
               "writing the store record"));

  // Step 7.
  ChainTip tip;
  {
    CommitRequest request;
    request.kind = CommitKind::kCreate;
    request.batch = std::move(batch);
    std::string record;
    const absl::MutexLock lock(&impl.commit_mutex);
    CommitResult first =
        impl.WriteCommit(*instance, std::move(request), &record);
    CKPTREE_RETURN_IF_ERROR(first.status);
    tip = impl.tip;
  }

  // Step 8.
  slot.ordinal = tip.ordinal;
  slot.hash = tip.hash;
  slot.incarnation = 1;
  slot.device = impl.lock->device();
  slot.inode = impl.lock->inode();
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<HeadFile> head,
                           HeadFile::Create(files, impl.directory, slot));

  // Step 9.
  CKPTREE_RETURN_IF_ERROR(RemoveFile(files, creating));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));

  impl.report.head = head->slot();
  impl.report.ordinal = tip.ordinal;
  impl.Replace(instance, /*is_following=*/false);
  impl.StartWriting(tip, /*oldest=*/1, std::move(head));
  return database;
}

}  // namespace ckptree::kv
