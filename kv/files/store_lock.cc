// SPDX-License-Identifier: Apache-2.0

#include "kv/store_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/descriptor.h"
#include "kv/files/errno_status.h"
#include "kv/files/permissions.h"
#include "kv/process_mark.h"
#include "kv/store_directory.h"

namespace ckptree::kv {
namespace {

using Identity = std::pair<std::uint64_t, std::uint64_t>;  // Device, inode.

Identity IdentityOf(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_dev),
          static_cast<std::uint64_t>(status.st_ino)};
}

}  // namespace

// A lock that was taken.
struct HeldLock {
  int fd;
  Identity directory;
  Identity file;
};

namespace {

// The locks of this process by directory, with their descriptors. A std::mutex
// because the fork handlers must hold it across fork().
struct Registry {
  std::mutex mutex;
  std::map<Identity, int> held;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;  // Outlives every handle.
  return *registry;
}

// In the child, closes the inherited descriptors: an open file description
// lock lasts until the last of them is closed, so a child that lives on would
// keep the store locked after its parent died. Closing does not unlock.
void AfterForkInChild() {
  Registry& registry = TheRegistry();
  for (const auto& [identity, fd] : registry.held) close(fd);
  registry.held.clear();
  registry.mutex.unlock();
}

void RegisterForkHandlers() {
  static const int registered = pthread_atfork(
      +[] { TheRegistry().mutex.lock(); },
      +[] { TheRegistry().mutex.unlock(); }, &AfterForkInChild);
  static_cast<void>(registered);
}

constexpr std::string_view kBriefLine = "brief";

std::string FormatHolder(bool brief) {
  return absl::StrFormat("pid %d\nhost %s\n%s%s", getpid(), HostName(),
                         brief ? kBriefLine : "", brief ? "\n" : "");
}

// Empty fields where the holder has not written its name yet.
LockHolder ReadHolder(int fd) {
  std::array<char, 512> buffer{};
  const ssize_t size = pread(fd, buffer.data(), buffer.size(), 0);
  LockHolder holder;
  if (size <= 0) return holder;
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with("pid ")) {
      std::from_chars(line.data() + 4, line.data() + line.size(), holder.pid);
    } else if (line.starts_with("host ")) {
      holder.host = line.substr(5);
    } else if (line == kBriefLine) {
      holder.brief = true;
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return holder;
}

absl::Status HeldBy(const std::string& directory, const LockHolder& holder) {
  return absl::UnavailableError(
      absl::StrFormat("%s is held by another writer: pid %d on host %s",
                      directory, holder.pid, holder.host));
}

// One attempt. kUnavailable where `other` holds it, kAborted where LOCK was
// replaced in between.
absl::StatusOr<HeldLock> TryAcquire(const std::string& directory,
                                    int permissions, bool brief,
                                    LockHolder* other) {
  const Descriptor folder(OpenAt(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY));
  struct stat status;
  if (folder.get() < 0 || fstat(folder.get(), &status) != 0) {
    return ErrnoStatus(errno, absl::StrFormat("opening %s", directory));
  }
  const Identity identity = IdentityOf(status);

  // Held over the attempt: opening and locking do not wait for anybody.
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  if (const auto held = registry.held.find(identity);
      held != registry.held.end()) {
    *other = {.pid = getpid(),
              .host = HostName(),
              .brief = ReadHolder(held->second).brief};
    return HeldBy(directory, *other);
  }

  Descriptor file(OpenAt(folder.get(), kLockName, O_RDWR | O_CREAT | O_NOFOLLOW,
                         FileMode(permissions)));
  if (file.get() < 0) {
    const int error = errno;
    const std::string context =
        absl::StrFormat("opening %s/%s", directory, kLockName);
    if (error == ELOOP) {
      return absl::FailedPreconditionError(context + ": it is a link");
    }
    return ErrnoStatus(error, context);
  }
  if (!TryLock(file.get())) {
    const int error = errno;
    if (error == EAGAIN || error == EACCES) {
      *other = ReadHolder(file.get());
      return HeldBy(directory, *other);
    }
    return ErrnoStatus(error,
                       absl::StrFormat("locking %s/%s", directory, kLockName));
  }
  struct stat by_name;
  if (fstat(file.get(), &status) != 0 ||
      fstatat(folder.get(), kLockName, &by_name, AT_SYMLINK_NOFOLLOW) != 0 ||
      IdentityOf(status) != IdentityOf(by_name)) {
    return absl::AbortedError("LOCK was replaced while it was being locked");
  }
  if (!S_ISREG(status.st_mode) || status.st_nlink != 1) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s/%s is no file of its own (it has %d names): what has the other "
        "name would be overwritten; remove it or copy it",
        directory, kLockName, status.st_nlink));
  }
  // The name is a courtesy: a full disk must not keep the owner out.
  const std::string holder = FormatHolder(brief);
  if (pwrite(file.get(), holder.data(), holder.size(), 0) < 0 ||
      ftruncate(file.get(), static_cast<off_t>(holder.size())) != 0) {
    errno = 0;
  }
  const HeldLock locked{file.Release(), identity, IdentityOf(status)};
  registry.held.emplace(identity, locked.fd);
  return locked;
}

}  // namespace

struct StoreLock::Impl {
  ProcessMark mark;
  std::string directory;
  HeldLock locked{};
};

absl::StatusOr<std::unique_ptr<StoreLock>> StoreLock::Acquire(
    const std::string& directory, std::int64_t wait_ms, int permissions,
    bool brief) {
  RegisterForkHandlers();
  CKPTREE_RETURN_IF_ERROR(CheckOwner(directory));
  const auto begun = std::chrono::steady_clock::now();
  // A clock of nanoseconds cannot tell longer than three centuries.
  const auto wait =
      std::min(std::chrono::milliseconds(wait_ms),
               std::chrono::milliseconds(std::chrono::hours(24 * 365 * 100)));
  while (true) {
    LockHolder other;
    absl::StatusOr<HeldLock> locked =
        TryAcquire(directory, permissions, brief, &other);
    if (locked.ok()) {
      auto impl = std::make_unique<Impl>();
      std::error_code ignored;
      // Absolute, so that Check() does not depend on the working directory.
      impl->directory = std::filesystem::absolute(directory, ignored).string();
      impl->locked = *locked;
      return std::unique_ptr<StoreLock>(new StoreLock(std::move(impl)));
    }
    if (absl::IsAborted(locked.status())) continue;
    const auto least = std::chrono::milliseconds(
        other.brief && !brief ? kBriefWaitMs : std::int64_t{0});
    if (!absl::IsUnavailable(locked.status()) ||
        std::chrono::steady_clock::now() - begun >= std::max(wait, least)) {
      return std::move(locked).status();
    }
    // A lock with a deadline does not exist, so ask again now and then.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::StatusOr<std::optional<LockHolder>> StoreLock::Probe(
    const std::string& directory) {
  const std::string path = directory + "/" + kLockName;
  const Descriptor file(OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    return ErrnoStatus(errno, absl::StrFormat("opening %s", path));
  }
  struct flock lock = WholeFile();
  if (fcntl(file.get(), F_OFD_GETLK, &lock) != 0) {
    return ErrnoStatus(errno, absl::StrFormat("probing %s", path));
  }
  if (lock.l_type == F_UNLCK) return std::nullopt;
  return ReadHolder(file.get());
}

StoreLock::StoreLock(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StoreLock::~StoreLock() {
  if (!impl_->mark.Holds()) return;  // Already closed when it was forked.
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  registry.held.erase(impl_->locked.directory);
  // Unlocks even where a child still has the descriptor.
  struct flock lock = WholeFile();
  lock.l_type = F_UNLCK;
  fcntl(impl_->locked.fd, F_OFD_SETLK, &lock);
  close(impl_->locked.fd);
}

absl::Status StoreLock::Check() const {
  CKPTREE_RETURN_IF_ERROR(impl_->mark.Check());
  struct stat status;
  if (stat(impl_->directory.c_str(), &status) != 0 ||
      IdentityOf(status) != impl_->locked.directory) {
    return absl::FailedPreconditionError(
        absl::StrFormat("store was moved away from %s", impl_->directory));
  }
  const std::string path = impl_->directory + "/" + kLockName;
  if (lstat(path.c_str(), &status) != 0 ||
      IdentityOf(status) != impl_->locked.file) {
    return absl::FailedPreconditionError(
        absl::StrFormat("LOCK was replaced in %s", impl_->directory));
  }
  return absl::OkStatus();
}

std::uint64_t StoreLock::device() const {
  return impl_->locked.directory.first;
}

std::uint64_t StoreLock::inode() const {
  return impl_->locked.directory.second;
}

}  // namespace ckptree::kv
