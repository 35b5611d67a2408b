// SPDX-License-Identifier: Apache-2.0

// Database::Create. The steps, of which kv/store_creation.h has 1 to 4 and 8:
//
//   1. The directory, its name durable in its parent.
//   2. Lock; look again: only one creation goes on from here.
//   3. CREATING, durable: until it is gone there is no store, and whatever lies
//      beside it was never acknowledged.
//   4. Remove what an interrupted creation, or fetch, left.
//   5. staging, journal and the database.
//   6. The first commit, with the store record.
//   7. The index to a file: one that has only ever adopted files loses them to
//      its first compaction.
//   8. Remove CREATING, durably. Acknowledged after that.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/files/status.h"
#include "kv/options.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

absl::StatusOr<std::unique_ptr<Database>> Database::Create(
    const std::string& directory, const Options& options, std::string_view uuid,
    std::string_view store_key, std::string_view store_value,
    WriteBatch batch) {
  OpenReport found;
  if (uuid.size() != found.uuid.size()) {
    return absl::InvalidArgumentError("a uuid has 16 bytes");
  }
  std::copy(uuid.begin(), uuid.end(), found.uuid.begin());
  std::unique_ptr<Database> database(new Database(std::make_unique<Impl>(
      AbsolutePath(directory), options, Mode::kReadWrite)));
  Impl& impl = *database->impl_;
  const Options& files = impl.writer_options;

  // Steps 1 and 2.
  CKPTREE_ASSIGN_OR_RETURN(impl.lock, LockForCreation(files, impl.directory));
  impl.place->Watch(impl.lock);
  // There was no directory to know them by.
  impl.lost_blocks = LostBlocks::Of(impl.directory);

  // Steps 3 and 4.
  CKPTREE_RETURN_IF_ERROR(BeginCreation(files, impl.directory));
  for (const std::string_view name : {kRemoteName, kRemoteTemporaryName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveFile(files, Join(impl.directory, name)));
  }
  CKPTREE_RETURN_IF_ERROR(
      RemoveTree(files, Join(impl.directory, kFetchingName)));

  // Step 5.
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(files, Join(impl.directory, kStagingName)));
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(files, Join(impl.directory, kJournalName)));
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           Instance::Open(Role::kCreate, impl.DbDirectory(),
                                          files, impl.watcher, impl.lock));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));

  // Step 6.
  found.incarnation = 1;
  found.highest_version = options.version_floor;
  impl.report = found;
  WriteBatch first;
  first.Put(schema::Space::kRecords, std::string(store_key),
            std::string(store_value));
  for (const WriteBatch::Operation& operation : batch.operations()) {
    if (operation.value.has_value()) {
      first.Put(operation.space, operation.key, *operation.value);
    }
  }
  impl.Replace(instance, /*is_following=*/false);
  impl.keeper = std::make_unique<JournalKeeper>(impl.ContextOf(Standing()));
  impl.writable = true;
  impl.watcher->Opened();
  {
    const absl::MutexLock lock(&impl.commit_mutex);
    const CommitResult done =
        impl.WriteCommit(*instance, CommitKind::kCreate, 0, first);
    CKPTREE_RETURN_IF_ERROR(done.status);
    impl.report.ordinal = done.ordinal;
    impl.session = 1;
  }
  CKPTREE_RETURN_IF_ERROR(impl.keeper->Secure());

  // Step 7.
  CKPTREE_RETURN_IF_ERROR(impl.FlushIndex());

  // Step 8.
  CKPTREE_RETURN_IF_ERROR(EndCreation(files, impl.directory));
  impl.keeper->Ready();
  return database;
}

}  // namespace ckptree::kv
