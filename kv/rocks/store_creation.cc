// SPDX-License-Identifier: Apache-2.0

#include "kv/store_creation.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
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
#include "kv/journal/preface.h"
#include "kv/journal/reader.h"
#include "kv/options.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"

namespace ckptree::kv {
namespace {

// What the mark of an unfinished creation holds.
constexpr std::string_view kNotFinished = "not finished\n";
// What LOCK begins with, as its holder writes it.
constexpr std::string_view kLockHead = "pid ";
constexpr std::size_t kMostControlBytes = 64 << 10;

// Whether a file has what `text` begins with and no more than that is asked of
// it: after a crash it may be shorter, after a power cut have zeros where bytes
// did not arrive.
bool BeginsAs(std::string_view file, std::string_view text) {
  const std::size_t size = std::min(file.size(), text.size());
  return std::ranges::equal(
      file.substr(0, size), text.substr(0, size),
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

// As RocksDB calls its files, and the journal its own.
bool IsNameInside(std::string_view name) {
  for (const std::string_view whole :
       {"CURRENT", "IDENTITY", "LOCK", "tip", "reserve", "rebuild"}) {
    if (name == whole) return true;
  }
  for (const std::string_view begins :
       {"MANIFEST-", "OPTIONS-", "LOG", "a-", "b-", "rows-"}) {
    if (name.starts_with(begins)) return true;
  }
  return name.ends_with(".sst") || name.ends_with(".log") ||
         name.ends_with(".dbtmp") || name.ends_with(".tmp");
}

absl::Status IsOfOthers(const std::string& directory, std::string_view name) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s has '%s', which no store made, and a store has one of that name: "
      "name a folder for the store alone, as %s/ckptree",
      directory, name, directory));
}

// The first name in `db` or `journal` that no store gives, with its folder.
struct Stranger {
  std::string_view folder;
  std::string name;
};
absl::StatusOr<std::optional<Stranger>> StrangerInside(
    const Options& options, const std::string& directory) {
  for (const std::string_view folder : {kDbName, kJournalName}) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(options, Join(directory, folder)));
    const auto other = std::ranges::find_if_not(names, IsNameInside);
    if (other != names.end()) return Stranger{folder, *other};
  }
  return std::nullopt;
}

// What has a name of ours and would be written over or removed may be of
// others: kInvalidArgument where it is. Whether the mark is gone.
absl::StatusOr<bool> CheckOurs(const Options& options,
                               const std::string& directory) {
  struct File {
    std::string_view name;
    std::string_view text;
    bool all;  // Nothing else is in it.
  };
  bool gone = true;
  for (const File& file : {File{kCreatingName, kNotFinished, true},
                           File{kLockName, kLockHead, false},
                           File{kRemoteName, kRemoteHead, false},
                           File{kRemoteTemporaryName, kRemoteHead, false}}) {
    const absl::StatusOr<std::string> is =
        ReadFile(options, Join(directory, file.name), kMostControlBytes);
    if (absl::IsNotFound(is.status())) continue;
    if (!is.ok()) return is.status();
    if (!BeginsAs(*is, file.text) ||
        (file.all && is->size() > file.text.size())) {
      return IsOfOthers(directory, file.name);
    }
    if (file.name == kCreatingName) gone = false;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<Stranger> other,
                           StrangerInside(options, directory));
  if (other.has_value()) return IsOfOthers(directory, other->folder);
  // Of a fetch that was killed.
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory fetched,
                           LookAt(Join(directory, kFetchingName)));
  if (!fetched.foreign.empty()) return IsOfOthers(directory, kFetchingName);
  return gone;
}

}  // namespace

bool HasFilesOfStore(const Options& options, const std::string& directory) {
  for (const std::string_view folder : {kDbName, kJournalName}) {
    const absl::StatusOr<std::vector<std::string>> names =
        ListDirectory(options, Join(directory, folder));
    if (!names.ok() || std::ranges::any_of(*names, IsNameInside)) return true;
  }
  return false;
}

absl::Status CheckInside(const Options& options, const std::string& directory) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<Stranger> other,
                           StrangerInside(options, directory));
  if (!other.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s/%s/%s was made by no store: move it away", directory,
                      other->folder, other->name));
}

absl::StatusOr<bool> GoesOnBesideMark(const Options& options,
                                      const std::string& directory) {
  const absl::StatusOr<JournalContent> journal =
      ReadJournal(options, directory, 1, /*beside_writer=*/true);
  // What a creation left may be no journal yet.
  if (absl::IsNotFound(journal.status()) ||
      absl::IsDataLoss(journal.status())) {
    return false;
  }
  CKPTREE_RETURN_IF_ERROR(journal.status());
  return journal->tip.ordinal > 1;
}

absl::Status MayCreate(const Options& options, const std::string& directory) {
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(directory));
  const absl::Status exists = absl::AlreadyExistsError(
      absl::StrFormat("there is a store in %s", directory));
  if (!found.creating && (found.head || found.db || found.journal)) {
    if (HasFilesOfStore(options, directory)) return exists;
    return IsOfOthers(directory, found.head      ? kHeadName
                                 : found.journal ? kJournalName
                                                 : kDbName);
  }
  if (found.creating) {
    // No commit is acknowledged while CREATING is there, so a journal beyond
    // the first one belongs to a store that somebody put the file into.
    CKPTREE_ASSIGN_OR_RETURN(const bool goes_on,
                             GoesOnBesideMark(options, directory));
    if (goes_on) return exists;
  }
  for (const std::string& name : found.foreign) {
    if (IsNameOfStep(name)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has %s, as checkpoints of other kinds are called: import them, "
          "or name a folder for the store alone, as %s/ckptree",
          directory, name, directory));
    }
    if (IsOwnName(name)) return IsOfOthers(directory, name);
  }
  if (found.exists) {
    CKPTREE_ASSIGN_OR_RETURN(const bool gone, CheckOurs(options, directory));
    // A creation by another process has just ended.
    if (found.creating && gone) return exists;
  }
  if (found.HoldsNoStore()) return absl::OkStatus();
  if (!found.creating) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is not empty: it has parts of a store", directory));
  }
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
  std::error_code error;
  const bool was_there = std::filesystem::exists(directory, error);
  CKPTREE_RETURN_IF_ERROR(MakeDirectory(options, directory));
  // One that was there may be in a folder of somebody else.
  const absl::Status synced = SyncDirectory(options, above);
  if (!was_there || !absl::IsPermissionDenied(synced)) {
    CKPTREE_RETURN_IF_ERROR(synced);
  }
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
  for (const std::string_view name : {kHeadName, kHeadTemporaryName}) {
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

absl::Status RemoveParts(const Options& options, const std::string& directory) {
  CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory found, LookAt(directory));
  const std::string away = Join(directory, kFetchingName);
  if (found.journal) {
    // Room for the mark on a full disk.
    CKPTREE_RETURN_IF_ERROR(
        RemoveFile(options, Join(Join(directory, kJournalName), kReserveName)));
    CKPTREE_RETURN_IF_ERROR(RemoveTree(options, away));
  }
  CKPTREE_RETURN_IF_ERROR(
      WriteFile(options, Join(directory, kCreatingName), kNotFinished));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  if (found.journal) {
    // Beside the mark there is no store without it.
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(options, away));
    CKPTREE_RETURN_IF_ERROR(RenameFile(options, Join(directory, kJournalName),
                                       Join(away, kJournalName)));
    CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  }
  for (const std::string& name : found.own) {
    if (name == kLockName || name == kCreatingName || name == kJournalName ||
        name == kFetchingName) {
      continue;
    }
    const std::string path = Join(directory, name);
    std::error_code error;
    CKPTREE_RETURN_IF_ERROR(std::filesystem::is_directory(path, error)
                                ? RemoveTree(options, path)
                                : RemoveFile(options, path));
  }
  CKPTREE_RETURN_IF_ERROR(RemoveTree(options, away));
  CKPTREE_RETURN_IF_ERROR(EndCreation(options, directory));
  // Last: nobody makes another one until then.
  return RemoveFile(options, Join(directory, kLockName));
}

}  // namespace ckptree::kv
