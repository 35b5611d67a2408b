// SPDX-License-Identifier: Apache-2.0

#include "kv/lease.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <new>
#include <random>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/files/descriptor.h"
#include "kv/files/errno_status.h"
#include "kv/files/permissions.h"
#include "kv/store_directory.h"

namespace ckptree::kv {
namespace {

// One write, one page: a lease that names more versions holds all of them.
constexpr std::size_t kMaxBytes = 4096;

std::string Sealed(const std::string& text) {
  std::string sealed(text);
  absl::StrAppend(&sealed, absl::Hex(base::ChecksumOf(text), absl::kZeroPad16),
                  "\n");
  return sealed;
}

bool StillNamed(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

std::string Content(const std::map<std::uint64_t, int>& held) {
  const std::string head =
      absl::StrCat("pid ", getpid(), " on ", HostName(), "\n");
  std::string text = head;
  for (const auto& [version, count] : held) {
    absl::StrAppend(&text, version, "\n");
  }
  if (text.size() + 17 > kMaxBytes) {
    text = absl::StrCat(head, kEveryVersion, "\n");
  }
  return Sealed(text);
}

// The lines of a lease, the holder first; nothing where it is not whole.
std::vector<std::string> Lines(std::string_view bytes) {
  std::vector<std::string> lines;
  if (bytes.size() < 17) return lines;
  const std::string text(bytes.substr(0, bytes.size() - 17));
  if (Sealed(text) != bytes) return lines;
  std::string_view left = text;
  while (!left.empty()) {
    const std::size_t end = left.find('\n');
    lines.emplace_back(left.substr(0, end));
    left.remove_prefix(end == left.npos ? left.size() : end + 1);
  }
  return lines;
}

void AddLease(std::string_view bytes,
              std::map<std::uint64_t, std::string>* leased) {
  const std::vector<std::string> lines = Lines(bytes);
  if (lines.empty()) {
    // It is being made, or written just now.
    leased->emplace(kEveryVersion, "a reader that has just come");
    return;
  }
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::uint64_t version = kEveryVersion;
    std::from_chars(lines[i].data(), lines[i].data() + lines[i].size(),
                    version);
    leased->emplace(version, lines[0]);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lease>> Lease::Make(const std::string& directory,
                                                   int permissions) {
  const std::string folder = Join(directory, kLeasesName);
  // What root makes belongs to whom the store does, who removes it.
  struct stat owner;
  if (stat(directory.c_str(), &owner) != 0) {
    return ErrnoStatus(errno, "looking at " + directory);
  }
  const bool give = geteuid() == 0 && owner.st_uid != 0;
  if (mkdir(folder.c_str(), FolderMode(permissions)) != 0) {
    if (errno != EEXIST) return ErrnoStatus(errno, "making " + folder);
  } else if (give) {
    static_cast<void>(!lchown(folder.c_str(), owner.st_uid, owner.st_gid));
  }
  std::random_device random;
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::string path = Join(
        folder, absl::StrFormat("%d-%08x%08x", getpid(), random(), random()));
    Descriptor file(OpenAt(AT_FDCWD, path,
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                           FileMode(permissions)));
    if (file.get() < 0) return ErrnoStatus(errno, "making " + path);
    if (give) {
      static_cast<void>(!fchown(file.get(), owner.st_uid, owner.st_gid));
    }
    // A collector may have found it unlocked, and removed it.
    if (TryLock(file.get()) && StillNamed(file.get(), path)) {
      std::unique_ptr<Lease> made(new Lease(std::move(path), file.Release()));
      // Of a lease without content all versions are held: on a full disk it
      // would stay so. Hold() comes before its caller looks whether the version
      // is still there.
      const absl::MutexLock lock(&made->mutex_);
      CKPTREE_RETURN_IF_ERROR(made->Write());
      return made;
    }
  }
  return absl::UnavailableError("no lease could be made in " + folder);
}

Lease::~Lease() {
  if (mark_.Holds()) unlink(path_.c_str());
  close(fd_);
}

absl::Status Lease::Hold(std::uint64_t version) {
  CKPTREE_RETURN_IF_ERROR(mark_.Check());
  const absl::MutexLock lock(&mutex_);
  if (++held_[version] > 1) return absl::OkStatus();
  absl::Status status = Write();
  if (status.ok()) return status;
  held_.erase(version);
  Write().IgnoreError();  // What it held before.
  return status;
}

void Lease::Drop(std::uint64_t version) {
  if (!mark_.Holds()) return;
  const absl::MutexLock lock(&mutex_);
  const auto it = held_.find(version);
  if (--it->second > 0) return;
  held_.erase(it);
  // At worst it holds for longer.
  try {
    Write().IgnoreError();
  } catch (const std::bad_alloc&) {
  }
}

absl::Status Lease::Write() {
  std::string content = Content(held_);
  const auto size = static_cast<ssize_t>(content.size());
  // What was longer before is cut off afterwards: until then it is not whole,
  // and holds everything.
  if (pwrite(fd_, content.data(), content.size(), 0) != size ||
      ftruncate(fd_, size) != 0) {
    return ErrnoStatus(errno, "writing " + path_);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::uint64_t, std::string>> LeasedVersions(
    const std::string& directory, const Lease* lists) {
  std::map<std::uint64_t, std::string> leased;
  const std::string folder = Join(directory, kLeasesName);
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) {
    if (errno == ENOENT) return leased;
    return ErrnoStatus(errno, "listing " + folder);
  }
  const absl::Cleanup close_folder = [entries] { closedir(entries); };
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(entries);
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    const std::string path = Join(folder, entry->d_name);
    int fd = OpenAt(AT_FDCWD, path, O_RDWR | O_NOFOLLOW);
    // Another user's: it can be asked whether it is locked.
    const bool others = fd < 0 && (errno == EACCES || errno == EPERM);
    if (others) fd = OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW);
    const Descriptor file(fd);
    if (file.get() < 0) {
      if (errno == ENOENT) continue;
      // Nobody can tell whether it lives.
      leased.emplace(kEveryVersion, path);
      continue;
    }
    if (others ? !IsLocked(file.get()) : TryLock(file.get())) {
      unlink(path.c_str());  // Where the folder lets us.
      continue;
    }
    std::array<char, kMaxBytes> buffer{};
    const ssize_t size = pread(file.get(), buffer.data(), buffer.size(), 0);
    std::map<std::uint64_t, std::string> found;
    AddLease(std::string_view(buffer.data(),
                              static_cast<std::size_t>(size < 0 ? 0 : size)),
             &found);
    if (lists != nullptr && path == lists->path()) found.erase(kEveryVersion);
    leased.merge(found);
  }
  if (errno != 0) return ErrnoStatus(errno, "listing " + folder);
  return leased;
}

}  // namespace ckptree::kv
