// SPDX-License-Identifier: Apache-2.0

#include "kv/process_mark.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace ckptree::kv {
namespace {

// Forks between this process and the one that loaded the library. The process
// number alone could come round again in a grandchild.
std::atomic<std::uint64_t> forks{0};

void CountFork() { forks.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

ProcessMark::ProcessMark()
    : pid_(getpid()), forks_(forks.load(std::memory_order_relaxed)) {
  static const int registered = pthread_atfork(nullptr, nullptr, &CountFork);
  static_cast<void>(registered);
}

bool ProcessMark::Holds() const {
  // The number as well: clone() without fork() runs no handlers.
  return forks.load(std::memory_order_relaxed) == forks_ && getpid() == pid_;
}

absl::Status ProcessMark::Check() const {
  if (Holds()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "opened by process %d; a forked child must open it itself", pid_));
}

}  // namespace ckptree::kv
