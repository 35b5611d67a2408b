// SPDX-License-Identifier: Apache-2.0

#include "kv/store_directory.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/errno_status.h"
#include "kv/journal/preface.h"
#include "kv/journal/reader.h"

namespace ckptree::kv {
namespace {

// Deeper is nothing that we made.
constexpr int kMaxDepth = 8;

enum class EntryType { kFile, kDirectory, kOther };
using EntryFn =
    absl::FunctionRef<absl::Status(const std::string& name, EntryType kind)>;

// Files that are read whole where they are met.
constexpr std::int64_t kMaxControlBytes = 1 << 20;

bool IsReadWhole(std::string_view name) {
  return name == kHeadName || name == kHeadTemporaryName ||
         name == kCreatingName;
}

// What a store's own directory has, and what of it is noted.
struct OwnEntry {
  std::string_view name;
  EntryType kind = EntryType::kFile;
  bool StoreDirectory::*found = nullptr;
};
constexpr OwnEntry kOwnEntries[] = {
    {kHeadName, EntryType::kFile, &StoreDirectory::head},
    {kHeadTemporaryName, EntryType::kFile, &StoreDirectory::head_temporary},
    {kCreatingName, EntryType::kFile, &StoreDirectory::creating},
    {kLockName},
    {kRemoteName},
    {kRemoteTemporaryName},
    {kDbName, EntryType::kDirectory, &StoreDirectory::db},
    {kNewDbName, EntryType::kDirectory, &StoreDirectory::new_db},
    {kJournalName, EntryType::kDirectory, &StoreDirectory::journal},
    {kStagingName, EntryType::kDirectory, &StoreDirectory::staging},
    {kFetchingName, EntryType::kDirectory, &StoreDirectory::fetching},
    {kLeasesName, EntryType::kDirectory},
    {kRequestsName, EntryType::kDirectory},
};
constexpr OwnEntry kDamagedDb = {kDamagedDbPrefix, EntryType::kDirectory};

// Null: the name is not of a store.
const OwnEntry* FindOwn(std::string_view name) {
  if (name.starts_with(kDamagedDbPrefix)) return &kDamagedDb;
  const auto* const own = std::ranges::find(kOwnEntries, name, &OwnEntry::name);
  return own == std::end(kOwnEntries) ? nullptr : own;
}

// `top`: of the store's own directory.
absl::Status ForEachEntry(const std::string& directory, bool top,
                          EntryFn entry) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()),
                                                   &closedir);
  if (stream == nullptr) {
    return ErrnoStatus(errno, absl::StrFormat("listing %s", directory));
  }
  errno = 0;
  while (const dirent* item = readdir(stream.get())) {
    const std::string name = item->d_name;
    if (name == "." || name == "..") continue;
    const std::string path = Join(directory, name);
    struct stat status;
    if (lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT) continue;  // A live writer removed it.
      return ErrnoStatus(errno, absl::StrFormat("looking at %s", path));
    }
    if (S_ISDIR(status.st_mode)) {
      CKPTREE_RETURN_IF_ERROR(entry(name, EntryType::kDirectory));
    } else if (S_ISREG(status.st_mode)) {
      if (top && status.st_size > kMaxControlBytes && IsReadWhole(name)) {
        return absl::DataLossError(absl::StrFormat(
            "%s is damaged: it has %d bytes, at most %d are possible", path,
            status.st_size, kMaxControlBytes));
      }
      CKPTREE_RETURN_IF_ERROR(entry(name, EntryType::kFile));
    } else if (top && FindOwn(name) == nullptr) {
      CKPTREE_RETURN_IF_ERROR(entry(name, EntryType::kOther));
    } else {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s is a link or a device; a store has only files: put the file "
          "there "
          "that it leads to, or move it away, and the store mends what it can "
          "and names what is gone",
          path));
    }
    errno = 0;
  }
  if (errno != 0) {
    return ErrnoStatus(errno, absl::StrFormat("listing %s", directory));
  }
  return absl::OkStatus();
}

std::uint64_t VersionOf(std::string_view name) {
  std::uint64_t version = 0;
  if (name.starts_with('v')) {
    std::from_chars(name.data() + 1, name.data() + name.size(), version);
  }
  return version;
}

absl::Status LookInto(const std::string& directory, int depth,
                      std::uint64_t* highest_version) {
  if (depth > kMaxDepth) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s lies too deep for a store", directory));
  }
  const absl::Status status = ForEachEntry(
      directory, /*top=*/false,
      [&](const std::string& name, EntryType kind) -> absl::Status {
        *highest_version = std::max(*highest_version, VersionOf(name));
        if (kind == EntryType::kFile) return absl::OkStatus();
        return LookInto(Join(directory, name), depth + 1, highest_version);
      });
  // A live writer removed it.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

std::string Join(const std::string& directory, std::string_view name) {
  std::string path;
  path.reserve(directory.size() + 1 + name.size());
  return path.append(directory).append("/").append(name);
}

bool IsOwnName(std::string_view name) { return FindOwn(name) != nullptr; }

std::string IndexDirectory(const std::string& directory) {
  struct stat status;
  for (const std::string_view name : {kDbName, kNewDbName}) {
    const std::string path = Join(directory, name);
    if (lstat(path.c_str(), &status) == 0) return path;
  }
  return Join(directory, kDbName);
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::string AbsolutePath(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::absolute(directory, error).lexically_normal();
  if (error) return directory;
  // "a/" normalises to "a/": its last component is empty.
  return path.has_filename() ? path.string() : path.parent_path().string();
}

absl::StatusOr<StoreDirectory> LookAt(const std::string& directory) {
  StoreDirectory found;
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) {
    if (errno == ENOENT) return found;
    return ErrnoStatus(errno, absl::StrFormat("looking at %s", directory));
  }
  if (!S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is not a directory", directory));
  }
  found.exists = true;
  if ((status.st_mode & S_IWOTH) != 0) {
    found.warnings.push_back(
        absl::StrFormat("%s is writable for others", directory));
  }
  bool leases = false;
  CKPTREE_RETURN_IF_ERROR(ForEachEntry(
      directory, /*top=*/true,
      [&](const std::string& name, EntryType kind) -> absl::Status {
        const OwnEntry* const own = FindOwn(name);
        if (own == nullptr || own->kind != kind) {
          found.foreign.push_back(name);
          return absl::OkStatus();
        }
        found.own.push_back(name);
        if (own->found != nullptr) found.*own->found = true;
        if (own->name == kLeasesName) leases = true;
        return absl::OkStatus();
      }));
  std::uint64_t ignored = 0;
  if (found.db) {
    CKPTREE_RETURN_IF_ERROR(LookInto(Join(directory, kDbName), 0, &ignored));
  }
  if (found.new_db) {
    CKPTREE_RETURN_IF_ERROR(LookInto(Join(directory, kNewDbName), 0, &ignored));
  }
  if (found.journal) {
    CKPTREE_RETURN_IF_ERROR(
        LookInto(Join(directory, kJournalName), 0, &ignored));
  }
  if (leases) {
    CKPTREE_RETURN_IF_ERROR(
        LookInto(Join(directory, kLeasesName), 0, &ignored));
  }
  if (found.staging) {
    CKPTREE_RETURN_IF_ERROR(LookInto(Join(directory, kStagingName), 0,
                                     &found.highest_staged_version));
  }
  return found;
}

std::optional<std::array<std::uint8_t, 16>> UuidOfStore(
    const Options& options, const std::string& directory) {
  const absl::StatusOr<JournalContent> journal =
      ReadJournal(options, directory, ~std::uint64_t{0},
                  /*beside_writer=*/true);
  if (!journal.ok() || journal->newest.file == 0) return std::nullopt;
  return journal->newest.uuid;
}

}  // namespace ckptree::kv
