// SPDX-License-Identifier: Apache-2.0

// Preloaded into a program: stands in front of the C library's file calls,
// counts those below one folder and lets one of them fail, or the process be
// killed or signalled at it. Talks to the kernel alone; see call_shim.h.

#include "tests/fault/call_shim.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using ckptree::testing::ShimCounts;

enum class Does { kCount, kKill, kSignal, kFail, kFailOn, kInterrupt };

ShimCounts* counts = nullptr;
const char* under = nullptr;
const char* only = nullptr;
std::size_t under_length = 0;
Does does = Does::kCount;
std::uint64_t at = 0;
int value = 0;
bool reads = false;

// Descriptors of files below the folder.
constexpr int kMostDescriptors = 1 << 16;
std::array<std::atomic<bool>, kMostDescriptors> watched{};
// kInterrupt: whether this thread's last call was interrupted.
thread_local bool interrupted = false;

__attribute__((constructor)) void Start() {
  const char* const file = std::getenv("CKPTREE_SHIM_COUNTS");
  under = std::getenv("CKPTREE_SHIM_UNDER");
  only = std::getenv("CKPTREE_SHIM_ONLY");
  if (file == nullptr || under == nullptr) return;
  under_length = std::strlen(under);
  if (const char* n = std::getenv("CKPTREE_SHIM_AT")) {
    at = std::strtoull(n, nullptr, 10);
  }
  if (const char* n = std::getenv("CKPTREE_SHIM_VALUE")) value = std::atoi(n);
  reads = std::getenv("CKPTREE_SHIM_READS") != nullptr;
  if (const char* const name = std::getenv("CKPTREE_SHIM_DOES")) {
    constexpr std::array<const char*, 6> kNames = {
        "count", "kill", "signal", "fail", "fail_on", "interrupt"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (std::strcmp(name, kNames[i]) == 0) does = static_cast<Does>(i);
    }
  }
  const long fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return;
  void* const mapped = mmap(nullptr, sizeof(ShimCounts), PROT_READ | PROT_WRITE,
                            MAP_SHARED, static_cast<int>(fd), 0);
  syscall(SYS_close, fd);
  if (mapped != MAP_FAILED) counts = static_cast<ShimCounts*>(mapped);
}

bool Watched(int fd) {
  return counts != nullptr && fd >= 0 && fd < kMostDescriptors &&
         watched[static_cast<std::size_t>(fd)].load();
}

void Watch(long fd, bool watch) {
  if (fd < 0 || fd >= kMostDescriptors) return;
  watched[static_cast<std::size_t>(fd)].store(watch);
}

bool Below(int folder, const char* path) {
  if (counts == nullptr || path == nullptr) return false;
  if (path[0] != '/' && folder != AT_FDCWD) return Watched(folder);
  char absolute[4096];
  if (path[0] != '/') {
    if (syscall(SYS_getcwd, absolute, sizeof(absolute)) < 0) return false;
    std::strncat(absolute, "/", sizeof(absolute) - std::strlen(absolute) - 1);
    std::strncat(absolute, path, sizeof(absolute) - std::strlen(absolute) - 1);
    path = absolute;
  }
  return std::strncmp(path, under, under_length) == 0 &&
         (path[under_length] == '/' || path[under_length] == '\0');
}

// True where the call shall fail, with errno set. `path` may be null: `fd`.
bool Fails(const char* name, const char* path, int fd) {
  if (only != nullptr && std::strcmp(name, only) != 0) return false;
  const int before = errno;
  const std::uint64_t n = counts->calls.fetch_add(1) + 1;
  const bool on = does == Does::kFailOn ? n >= at : n == at;
  if (does == Does::kCount || does == Does::kInterrupt || !on) return false;
  if (counts->fired.fetch_add(1) == 0) {
    char link[64];
    char target[400] = "?";
    if (path == nullptr) {
      std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
      const long length =
          syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof(target) - 1);
      if (length >= 0) target[length] = '\0';
      path = target;
    }
    std::snprintf(counts->fired_at, sizeof(counts->fired_at), "%s %s", name,
                  path);
  }
  switch (does) {
    case Does::kKill:
      syscall(SYS_kill, getpid(), SIGKILL);
      for (;;) pause();
    case Does::kSignal:
      syscall(SYS_kill, getpid(), value);
      errno = before;
      return false;
    default:
      errno = value;
      return true;
  }
}

// kInterrupt: true for every second call of a thread, with errno set.
bool Interrupts() {
  if (does != Does::kInterrupt) return false;
  interrupted = !interrupted;
  if (!interrupted) return false;
  counts->fired.fetch_add(1);
  errno = EINTR;
  return true;
}

std::size_t Shortened(std::size_t count) {
  return does == Does::kInterrupt && count > 1 ? count / 2 : count;
}

int Open(int folder, const char* path, int flags, mode_t mode) {
  const bool below = Below(folder, path);
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  if (below && (writes || reads)) {
    if (Fails(writes ? "open" : "open to read", path, -1)) return -1;
    if ((flags & O_DIRECTORY) == 0 && Interrupts()) return -1;
  }
  const long fd = syscall(SYS_openat, folder, path, flags, mode);
  Watch(fd, below);
  return static_cast<int>(fd);
}

template <typename Call>
auto OnFile(const char* name, int fd, bool changes, const Call& call)
    -> decltype(call()) {
  if (Watched(fd) && (changes || reads) && Fails(name, nullptr, fd)) return -1;
  return call();
}

template <typename Call>
ssize_t Moves(const char* name, int fd, bool changes, std::size_t count,
              const Call& call) {
  if (!Watched(fd) || (!changes && !reads)) return call(count);
  if (Fails(name, nullptr, fd) || Interrupts()) return -1;
  return call(Shortened(count));
}

template <typename Call>
int OnPath(const char* name, int folder, const char* path, const Call& call) {
  if (Below(folder, path) && Fails(name, path, -1)) return -1;
  return static_cast<int>(call());
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE
             ? static_cast<mode_t>(va_arg(arguments, int))
             : 0;
}

}  // namespace

extern "C" {

#define CKPTREE_SHIM_OPEN(name)                   \
  int name(const char* path, int flags, ...) {    \
    va_list arguments;                            \
    va_start(arguments, flags);                   \
    const mode_t mode = ModeOf(flags, arguments); \
    va_end(arguments);                            \
    return Open(AT_FDCWD, path, flags, mode);     \
  }
#define CKPTREE_SHIM_OPENAT(name)                          \
  int name(int folder, const char* path, int flags, ...) { \
    va_list arguments;                                     \
    va_start(arguments, flags);                            \
    const mode_t mode = ModeOf(flags, arguments);          \
    va_end(arguments);                                     \
    return Open(folder, path, flags, mode);                \
  }
CKPTREE_SHIM_OPEN(open)
CKPTREE_SHIM_OPEN(open64)
CKPTREE_SHIM_OPENAT(openat)
CKPTREE_SHIM_OPENAT(openat64)
// As fortified programs call them.
int __open_2(const char* path, int flags) {
  return Open(AT_FDCWD, path, flags, 0);
}
int __open64_2(const char* path, int flags) {
  return Open(AT_FDCWD, path, flags, 0);
}
int __openat_2(int folder, const char* path, int flags) {
  return Open(folder, path, flags, 0);
}
int __openat64_2(int folder, const char* path, int flags) {
  return Open(folder, path, flags, 0);
}

int close(int fd) {
  const bool fails = Watched(fd) && reads && Fails("close", nullptr, fd);
  const int error = errno;
  Watch(fd, false);
  const long closed = syscall(SYS_close, fd);
  if (!fails) return static_cast<int>(closed);
  errno = error;
  return -1;
}

ssize_t read(int fd, void* to, std::size_t count) {
  return Moves("read", fd, false, count,
               [&](std::size_t n) { return syscall(SYS_read, fd, to, n); });
}
ssize_t __read_chk(int fd, void* to, std::size_t count, std::size_t) {
  return read(fd, to, count);
}
ssize_t pread(int fd, void* to, std::size_t count, off_t from) {
  return Moves("read", fd, false, count, [&](std::size_t n) {
    return syscall(SYS_pread64, fd, to, n, from);
  });
}
ssize_t pread64(int fd, void* to, std::size_t count, off_t from) {
  return pread(fd, to, count, from);
}
ssize_t __pread_chk(int fd, void* to, std::size_t count, off_t from,
                    std::size_t) {
  return pread(fd, to, count, from);
}
ssize_t __pread64_chk(int fd, void* to, std::size_t count, off_t from,
                      std::size_t) {
  return pread(fd, to, count, from);
}

ssize_t write(int fd, const void* from, std::size_t count) {
  return Moves("write", fd, true, count,
               [&](std::size_t n) { return syscall(SYS_write, fd, from, n); });
}
ssize_t pwrite(int fd, const void* from, std::size_t count, off_t to) {
  return Moves("write", fd, true, count, [&](std::size_t n) {
    return syscall(SYS_pwrite64, fd, from, n, to);
  });
}
ssize_t pwrite64(int fd, const void* from, std::size_t count, off_t to) {
  return pwrite(fd, from, count, to);
}

int fsync(int fd) {
  return OnFile("sync", fd, true,
                [&] { return static_cast<int>(syscall(SYS_fsync, fd)); });
}
int fdatasync(int fd) {
  return OnFile("sync", fd, true,
                [&] { return static_cast<int>(syscall(SYS_fdatasync, fd)); });
}
int ftruncate(int fd, off_t size) noexcept {
  return OnFile("truncate", fd, true, [&] {
    return static_cast<int>(syscall(SYS_ftruncate, fd, size));
  });
}
int ftruncate64(int fd, off_t size) noexcept { return ftruncate(fd, size); }
int fallocate(int fd, int mode, off_t from, off_t count) {
  return OnFile("allocate", fd, true, [&] {
    return static_cast<int>(syscall(SYS_fallocate, fd, mode, from, count));
  });
}
int fallocate64(int fd, int mode, off_t from, off_t count) {
  return fallocate(fd, mode, from, count);
}

int renameat(int from_folder, const char* from, int to_folder,
             const char* to) noexcept {
  return OnPath("rename", to_folder, to, [&] {
    return syscall(SYS_renameat, from_folder, from, to_folder, to);
  });
}
int rename(const char* from, const char* to) noexcept {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return OnPath("rename", to_folder, to, [&] {
    return syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  });
}
int link(const char* from, const char* to) noexcept {
  return OnPath("link", AT_FDCWD, to, [&] {
    return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
  });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return OnPath("unlink", folder, path,
                [&] { return syscall(SYS_unlinkat, folder, path, flags); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept {
  return OnPath("rmdir", AT_FDCWD, path, [&] {
    return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
  });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return OnPath("mkdir", folder, path,
                [&] { return syscall(SYS_mkdirat, folder, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return mkdirat(AT_FDCWD, path, mode);
}

}  // extern "C"
