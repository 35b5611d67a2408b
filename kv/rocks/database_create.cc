// SPDX-License-Identifier: Apache-2.0

// Database::Create. The steps:
//
//   1. The directory, its name durable in its parent.
//   2. Lock; look again: only one creation goes on from here.
//   3. CREATING, durable: until it is gone there is no store, and whatever lies
//      beside it was never acknowledged.
//   4. Remove what an interrupted creation left.
//   5. staging, journal and the database.
//   6. The first commit, with the store record.
//   7. The index to a file: one that has only ever adopted files loses them to
//      its first compaction.
//   8. Remove CREATING, durably. Acknowledged after that.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/files/status.h"
#include "kv/options.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// What the mark of an unfinished creation holds; after a crash its beginning.
constexpr std::string_view kNotFinished = "not finished\n";

// As steps of other kinds of checkpoints are called: 100, step_100.
bool IsNameOfStep(std::string_view name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() &&
         std::ranges::all_of(name.substr(0, digits), [](char c) {
           return absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '-';
         });
}

// OK where a store may be made: nothing of one is there, or only what an
// interrupted creation left. Files of others stay beside it, but for what may
// be checkpoints: who trained with these and names their folder would begin
// anew. A lost journal alone never makes a store look unfinished.
absl::Status MayCreate(const std::string& directory, const Options& options) {
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(directory));
  const absl::Status exists = absl::AlreadyExistsError(
      absl::StrFormat("there is a store in %s", directory));
  if (!found.creating && (found.head || found.db || found.journal)) {
    return exists;
  }
  for (const std::string& name : found.foreign) {
    if (!IsNameOfStep(name)) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has %s, as checkpoints of other kinds are called: import them, or "
        "name a folder for the store alone, as %s/ckptree",
        directory, name, directory));
  }
  if (found.HoldsNoStore()) return absl::OkStatus();
  if (!found.creating) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is not empty: it has parts of a store", directory));
  }
  // Beside files of others it may be one of theirs.
  if (!found.foreign.empty()) {
    const absl::StatusOr<std::string> mark = ReadFile(
        options, Join(directory, kCreatingName), kNotFinished.size() + 1);
    if (absl::IsNotFound(mark.status())) return exists;  // It is finished.
    if (!mark.ok()) return mark.status();
    if (!kNotFinished.starts_with(*mark)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has a file %s that no store made", directory, kCreatingName));
    }
  }
  // No commit is acknowledged while CREATING is there, so a journal beyond the
  // first one belongs to a store that somebody put the file into.
  const absl::StatusOr<JournalContent> journal =
      ReadJournal(options, directory, 1, /*beside_writer=*/true);
  if (journal.ok() && journal->tip.ordinal > 1) return exists;
  return absl::OkStatus();
}

}  // namespace

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

  // Step 1.
  CKPTREE_RETURN_IF_ERROR(MayCreate(impl.directory, files));
  const std::string above =
      std::filesystem::path(impl.directory).parent_path().string();
  if (std::error_code error; !std::filesystem::exists(above, error) && !error) {
    return absl::NotFoundError(absl::StrFormat(
        "no store can be made in %s: there is no folder %s; make that first",
        impl.directory, above));
  }
  CKPTREE_RETURN_IF_ERROR(MakeDirectory(files, impl.directory));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, above));

  // Step 2.
  CKPTREE_ASSIGN_OR_RETURN(
      impl.lock, StoreLock::Acquire(impl.directory, options.lock_wait_ms,
                                    options.permissions, options.brief));
  impl.place->Watch(impl.lock);
  CKPTREE_RETURN_IF_ERROR(MayCreate(impl.directory, files));

  // Step 3.
  const std::string creating = Join(impl.directory, kCreatingName);
  CKPTREE_RETURN_IF_ERROR(WriteFile(files, creating, kNotFinished));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));

  // Step 4.
  for (const std::string_view name : {kHeadName, kHeadTemporaryName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveFile(files, Join(impl.directory, name)));
  }
  for (const std::string_view name :
       {kDbName, kNewDbName, kJournalName, kStagingName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveTree(files, Join(impl.directory, name)));
  }

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
  CKPTREE_RETURN_IF_ERROR(RemoveFile(files, creating));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(files, impl.directory));
  impl.keeper->Ready();
  return database;
}

}  // namespace ckptree::kv
