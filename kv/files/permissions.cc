// SPDX-License-Identifier: Apache-2.0

#include "kv/files/permissions.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kv/files/descriptor.h"
#include "kv/files/errno_status.h"

namespace ckptree::kv {
namespace {

mode_t Umask() {
  constexpr mode_t kUsual = 022;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> status(
      std::fopen("/proc/self/status", "re"), &std::fclose);
  if (status == nullptr) return kUsual;
  std::array<char, 256> line{};
  unsigned mask = kUsual;
  while (std::fgets(line.data(), static_cast<int>(line.size()), status.get()) !=
         nullptr) {
    if (std::sscanf(line.data(), "Umask: %o", &mask) == 1) break;
  }
  return static_cast<mode_t>(mask & 0777);
}

}  // namespace

mode_t FileMode(int permissions) {
  return static_cast<mode_t>(permissions) & 0666;
}

mode_t FolderMode(int permissions) {
  const mode_t files = FileMode(permissions);
  return files | ((files & 0444) >> 2);
}

std::string UserName(uid_t uid) {
  std::array<char, 4096> buffer{};
  struct passwd entry;
  struct passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr) {
    return absl::StrFormat("%s (uid %d)", found->pw_name, uid);
  }
  return absl::StrFormat("uid %d", uid);
}

mode_t WithoutUmask(mode_t mode) { return mode & ~Umask(); }

absl::Status CheckOwner(const std::string& directory) {
  struct stat folder;
  if (stat(directory.c_str(), &folder) != 0) {
    return ErrnoStatus(errno, absl::StrFormat("looking at %s", directory));
  }
  if (folder.st_uid == geteuid()) return absl::OkStatus();
  std::random_device random;
  const std::string path =
      absl::StrFormat("%s/.owner-%08x%08x", directory, random(), random());
  const Descriptor probe(
      OpenAt(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  struct stat made;
  const bool known = probe.get() >= 0 && fstat(probe.get(), &made) == 0;
  const int error = errno;
  if (probe.get() >= 0) unlink(path.c_str());
  if (known && made.st_uid == folder.st_uid) return absl::OkStatus();
  if (!known) {
    return ErrnoStatus(
        error, absl::StrFormat("making a file in %s, which belongs to %s",
                               directory, UserName(folder.st_uid)));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s belongs to %s and this process runs as %s: what it writes there the "
      "owner could not read; run as the owner (sudo -u), or change the owner "
      "of the whole store (chown -R)",
      directory, UserName(folder.st_uid), UserName(geteuid())));
}

}  // namespace ckptree::kv
