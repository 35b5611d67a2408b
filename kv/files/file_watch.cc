// SPDX-License-Identifier: Apache-2.0

#include "kv/file_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "absl/time/time.h"
#include "kv/monotonic.h"

namespace ckptree::kv {
namespace {

// Many events; each has at most a name.
constexpr std::size_t kEventBytes = 16 << 10;

}  // namespace

FileWatch::FileWatch(const std::string& path)
    : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0 || Add(path)) return;
  close(fd_);
  fd_ = -1;
}

FileWatch::~FileWatch() {
  if (fd_ >= 0) close(fd_);
  if (wake_ >= 0) close(wake_);
}

bool FileWatch::Add(const std::string& path) {
  return fd_ >= 0 &&
         inotify_add_watch(fd_, path.c_str(),
                           IN_MODIFY | IN_CREATE | IN_MOVED_TO) >= 0;
}

bool FileWatch::Wait(absl::Duration timeout) {
  const absl::Time end = MonotonicNow() + timeout;
  while (true) {
    const absl::Duration left =
        std::max(end - MonotonicNow(), absl::ZeroDuration());
    const timespec wait = absl::ToTimespec(left);
    // poll(2) leaves out what is negative.
    std::array<pollfd, 2> watched = {{{fd_, POLLIN, 0}, {wake_, POLLIN, 0}}};
    if (ppoll(watched.data(), watched.size(), &wait, nullptr) > 0) {
      bool any = false;
      std::uint64_t count = 0;
      if (wake_ >= 0 && read(wake_, &count, sizeof count) > 0) any = true;
      // Whatever it is: who waits looks at the files.
      alignas(inotify_event) std::array<char, kEventBytes> events;
      while (fd_ >= 0 && read(fd_, events.data(), events.size()) > 0) {
        any = true;
      }
      if (any) return true;  // Else another thread has it.
    }
    if (MonotonicNow() >= end) return false;
  }
}

void FileWatch::Wake() {
  const std::uint64_t one = 1;
  // Where it is full, who waits is woken already.
  if (wake_ >= 0) static_cast<void>(!write(wake_, &one, sizeof one));
}

}  // namespace ckptree::kv
