// SPDX-License-Identifier: Apache-2.0

#include "kv/process_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace ckptree::kv {
namespace {

// Forks between this process and the one that loaded the library. The process
// number alone could come round again in a grandchild.
std::atomic<std::uint64_t> forks{0};

void CountFork() { forks.fetch_add(1, std::memory_order_relaxed); }

// What a process knows of itself; zeros in a child that was just made.
struct Self {
  std::atomic<std::uint64_t> number;  // Other than those of its ancestors.
  std::atomic<std::int64_t> pid;
};

// In a page that the kernel empties for each child, by fork() or by clone():
// to read it takes a hundredth of the time of getpid(), which is a system call.
// Null where there is no such page.
Self* MakeSelf() {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  // A system that takes any advice may follow none.
  constexpr int kNoAdvice = -1;
  if (madvise(page, bytes, kNoAdvice) == 0 ||
      madvise(page, bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, bytes);
    return nullptr;
  }
  return new (page) Self{};
}

Self* GetSelf() {
  static Self* const self = MakeSelf();
  return self;
}

// Of this process; 0 where the system does not tell.
std::uint64_t NumberOf(Self* self) {
  // Given so far, to this process and its ancestors.
  static std::atomic<std::uint64_t> given{0};
  if (self == nullptr) return 0;
  std::uint64_t number = self->number.load(std::memory_order_acquire);
  if (number != 0) return number;
  self->pid.store(getpid(), std::memory_order_relaxed);
  const std::uint64_t next = given.fetch_add(1, std::memory_order_relaxed) + 1;
  // Else another thread was faster.
  return self->number.compare_exchange_strong(number, next) ? next : number;
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

ProcessMark::ProcessMark()
    : number_(NumberOf(GetSelf())),
      forks_(forks.load(std::memory_order_relaxed)),
      pid_(number_ == 0 ? getpid()
                        : GetSelf()->pid.load(std::memory_order_relaxed)) {
  static const int registered = pthread_atfork(nullptr, nullptr, &CountFork);
  static_cast<void>(registered);
}

bool ProcessMark::Holds() const {
  if (forks.load(std::memory_order_relaxed) != forks_) return false;
  // clone() without fork() runs no handlers.
  return number_ == 0 ? getpid() == pid_ : NumberOf(GetSelf()) == number_;
}

absl::Status ProcessMark::Check() const {
  if (Holds()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "opened by process %d; a forked child must open it itself", pid_));
}

}  // namespace ckptree::kv
