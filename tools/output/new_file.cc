// SPDX-License-Identifier: Apache-2.0

#include "tools/output/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".ckptree.tmp";

// Again where a signal interrupted it, as it can on a file system of the
// network.
int Open(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "."
         : slash == 0               ? "/"
                                    : path.substr(0, slash);
}

// The folder's entry of `path` made durable; an errno, or 0.
int SyncFolderOf(const std::string& path) {
  const int folder = Open(FolderOf(path), O_RDONLY | O_DIRECTORY);
  if (folder < 0) return errno;
  // Some file systems have no such thing.
  const int error = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  return error;
}

absl::Status Rename(const std::string& from, const std::string& to,
                    Others others) {
  const bool keep = others == Others::kKeep;
  bool renamed = false;
  if (keep) {
    renamed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                          RENAME_NOREPLACE) == 0;
    // A file system that has no such thing.
    if (!renamed && (errno == EINVAL || errno == ENOSYS)) {
      renamed = ::link(from.c_str(), to.c_str()) == 0;
      if (renamed) static_cast<void>(::unlink(from.c_str()));
      // Nor links, or it is a folder, which replaces nothing that has anything.
      if (!renamed && errno != EEXIST) {
        renamed = ::rename(from.c_str(), to.c_str()) == 0;
      }
    }
  } else {
    renamed = ::rename(from.c_str(), to.c_str()) == 0;
  }
  if (renamed) return absl::OkStatus();
  if (keep && errno == EEXIST) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%s exists: it was made in the meantime", Escape(to))),
                    "--force writes over it");
  }
  return FileError(errno, Escape(to));
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Where links lead to: what they name is made or replaced, not the link.
std::string BehindLinks(std::string path) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(path, error); ++links) {
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = (fs::path(FolderOf(path)) / to).string();
  }
  return path;
}

// `attempt` 0, 1, ...: in another container another process may have our
// number.
std::string TemporaryName(const std::string& path, int attempt) {
  return attempt == 0
             ? absl::StrFormat("%s.%d%s", path, getpid(), kEnding)
             : absl::StrFormat("%s.%d-%d%s", path, getpid(), attempt, kEnding);
}

// Whether `name` is one that TemporaryName() gives.
bool IsTemporary(std::string_view name) {
  if (!name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  const std::size_t number = name.find_last_not_of("0123456789-");
  return number != std::string_view::npos && name[number] == '.' &&
         number + 1 < name.size();
}

bool IsStillNamed(int descriptor, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 &&
         ::lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Removes what lies there unless a process that lives holds it. True: there is
// nothing any more.
bool RemoveAbandoned(const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) return errno == ENOENT;
  // A link that somebody put there: never followed.
  if (S_ISLNK(there.st_mode)) return ::unlink(path.c_str()) == 0;
  const bool folder = S_ISDIR(there.st_mode);
  if (!folder && !S_ISREG(there.st_mode)) return false;
  const int descriptor =
      Open(path, O_NOFOLLOW | (folder ? O_RDONLY | O_DIRECTORY : O_RDWR));
  if (descriptor < 0) return errno == ENOENT;
  bool removed = false;
  // Where there are no locks, nothing says that nobody writes.
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
      IsStillNamed(descriptor, path)) {
    std::error_code error;
    fs::remove_all(path, error);
    removed = !error;
  }
  ::close(descriptor);
  return removed;
}

// Holds what was just made. False: another one took it for abandoned before.
bool Hold(int descriptor, const std::string& path) {
  // Where the file system has no locks nothing is ever removed.
  return (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ||
          errno != EWOULDBLOCK) &&
         IsStillNamed(descriptor, path);
}

}  // namespace

NewFile::NewFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    RemoveOnInterrupt("");
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& name) {
  struct stat there {};
  const bool exists = ::stat(name.c_str(), &there) == 0;
  // By this name: what /dev/stdout leads to may have none.
  if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
    const int descriptor = Open(name, O_WRONLY);
    if (descriptor < 0) return FileError(errno, Escape(name));
    return NewFile(name, "", descriptor);
  }
  const std::string path = BehindLinks(name);
  if (exists && S_ISDIR(there.st_mode)) {
    return FileError(EISDIR, Escape(path));
  }
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string temporary = TemporaryName(path, attempt);
    if (!RemoveAbandoned(temporary)) continue;
    RemoveOnInterrupt(temporary);
    const int descriptor =
        Open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (descriptor >= 0 && Hold(descriptor, temporary)) {
      return NewFile(path, temporary, descriptor);
    }
    const int error = descriptor < 0 ? errno : EEXIST;
    if (descriptor >= 0) ::close(descriptor);
    RemoveOnInterrupt("");
    if (error != EEXIST) return FileError(error, Escape(path));
  }
  return FileError(EEXIST, Escape(TemporaryName(path, 0)));
}

absl::Status NewFile::Commit(Others others) {
  if (temporary_.empty()) return absl::OkStatus();
  if (::fsync(descriptor_) != 0) return FileError(errno, Escape(path_));
  CKPTREE_RETURN_IF_ERROR(Rename(temporary_, path_, others));
  temporary_.clear();
  RemoveOnInterrupt("");
  if (const int error = SyncFolderOf(path_); error != 0) {
    return FileError(error, Escape(path_));
  }
  return absl::OkStatus();
}

NewFolder::NewFolder(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

NewFolder::~NewFolder() {
  if (!temporary_.empty()) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<NewFolder> NewFolder::Create(const std::string& path) {
  const std::string target = BehindLinks(WithoutSlash(path));
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string temporary = TemporaryName(target, attempt);
    if (!RemoveAbandoned(temporary)) continue;
    if (::mkdir(temporary.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return FileError(errno, Escape(target));
    }
    const int descriptor = Open(temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (descriptor >= 0 && Hold(descriptor, temporary)) {
      return NewFolder(target, temporary, descriptor);
    }
    const int error = descriptor < 0 ? errno : ENOENT;
    if (descriptor >= 0) ::close(descriptor);
    // Another one has removed it.
    if (error != ENOENT) return FileError(error, Escape(target));
  }
  return FileError(EEXIST, Escape(TemporaryName(target, 0)));
}

absl::Status NewFolder::Commit(const std::string& name, Others others) {
  const std::string made = name.empty() ? temporary_ : *this / name;
  CKPTREE_RETURN_IF_ERROR(Rename(made, path_, others));
  if (name.empty()) temporary_.clear();
  if (const int error = SyncFolderOf(path_); error != 0) {
    return FileError(error, Escape(path_));
  }
  return absl::OkStatus();
}

void RemoveAbandonedBeside(const std::string& path) {
  const std::string folder = FolderOf(WithoutSlash(path));
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (IsTemporary(it->path().filename().string())) {
      found.push_back(it->path().string());
    }
  }
  for (const std::string& left : found) RemoveAbandoned(left);
}

}  // namespace ckptree::tools
