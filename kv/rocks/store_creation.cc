// SPDX-License-Identifier: Apache-2.0

#include "kv/store_creation.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/journal/reader.h"
#include "kv/options.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kNotFinished = "not finished\n";

// What the mark of an unfinished creation holds; after a crash its beginning,
// after a power cut zeros where bytes did not arrive.
bool IsMark(std::string_view text) {
  return text.size() <= kNotFinished.size() &&
         std::ranges::equal(
             text, kNotFinished.substr(0, text.size()),
             [](char is, char was) { return is == was || is == 0; });
}

// As steps of other kinds of checkpoints are called: 100, step_100.
bool IsNameOfStep(std::string_view name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() &&
         std::ranges::all_of(name.substr(0, digits), [](char c) {
           return absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '-';
         });
}

}  // namespace

absl::Status MayCreate(const Options& options, const std::string& directory) {
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
    if (!IsMark(*mark)) {
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

absl::StatusOr<std::unique_ptr<StoreLock>> LockForCreation(
    const Options& options, const std::string& directory) {
  CKPTREE_RETURN_IF_ERROR(MayCreate(options, directory));
  const std::string above =
      std::filesystem::path(directory).parent_path().string();
  if (std::error_code error; !std::filesystem::exists(above, error) && !error) {
    return absl::NotFoundError(absl::StrFormat(
        "no store can be made in %s: there is no folder %s; make that first",
        directory, above));
  }
  CKPTREE_RETURN_IF_ERROR(MakeDirectory(options, directory));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, above));
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<StoreLock> lock,
      StoreLock::Acquire(directory, options.lock_wait_ms, options.permissions,
                         options.brief));
  // Only one creation goes on from here.
  CKPTREE_RETURN_IF_ERROR(MayCreate(options, directory));
  return lock;
}

absl::Status BeginCreation(const Options& options,
                           const std::string& directory) {
  CKPTREE_RETURN_IF_ERROR(
      WriteFile(options, Join(directory, kCreatingName), kNotFinished));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  for (const std::string_view name :
       {kHeadName, kHeadTemporaryName, kRemoteName, kRemoteTemporaryName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveFile(options, Join(directory, name)));
  }
  for (const std::string_view name :
       {kDbName, kNewDbName, kJournalName, kStagingName}) {
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options, Join(directory, name)));
  }
  return absl::OkStatus();
}

absl::Status EndCreation(const Options& options, const std::string& directory) {
  CKPTREE_RETURN_IF_ERROR(RemoveFile(options, Join(directory, kCreatingName)));
  return SyncDirectory(options, directory);
}

absl::Status TakeFetched(const Options& options, const std::string& directory) {
  const std::string fetched = Join(directory, kFetchingName);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, fetched));
  for (const std::string& name : names) {
    if (name == kLockName || name == kJournalName) continue;
    CKPTREE_RETURN_IF_ERROR(
        RenameFile(options, Join(fetched, name), Join(directory, name)));
  }
  // The journal makes it a store: all else is there before.
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  CKPTREE_RETURN_IF_ERROR(RenameFile(options, Join(fetched, kJournalName),
                                     Join(directory, kJournalName)));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  CKPTREE_RETURN_IF_ERROR(EndCreation(options, directory));
  return RemoveTree(options, fetched);
}

}  // namespace ckptree::kv
