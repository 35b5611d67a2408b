// SPDX-License-Identifier: Apache-2.0

#include "kv/file_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>

#include "absl/time/clock.h"
#include "kv/monotonic.h"

namespace ckptree::kv {
namespace {

// Many events; each has at most a name.
constexpr std::size_t kEventBytes = 16 << 10;

}  // namespace

FileWatch::FileWatch(const std::string& path)
    : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (fd_ < 0) return;
  if (inotify_add_watch(fd_, path.c_str(), IN_MODIFY | IN_CREATE) >= 0) return;
  close(fd_);
  fd_ = -1;
}

FileWatch::~FileWatch() {
  if (fd_ >= 0) close(fd_);
}

bool FileWatch::Wait(absl::Duration timeout) {
  if (fd_ < 0) {
    absl::SleepFor(timeout);
    return false;
  }
  const absl::Time end = MonotonicNow() + timeout;
  while (true) {
    const absl::Duration left =
        std::max(end - MonotonicNow(), absl::ZeroDuration());
    const timespec wait = absl::ToTimespec(left);
    pollfd watched = {fd_, POLLIN, 0};
    if (ppoll(&watched, 1, &wait, nullptr) > 0) {
      // Whatever it is: who waits looks at the files.
      alignas(inotify_event) std::array<char, kEventBytes> events;
      bool any = false;
      while (read(fd_, events.data(), events.size()) > 0) any = true;
      if (any) return true;  // Else another thread has it.
    }
    if (MonotonicNow() >= end) return false;
  }
}

}  // namespace ckptree::kv
