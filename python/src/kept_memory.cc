// SPDX-License-Identifier: Apache-2.0

#include "python/src/kept_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ckptree::python {
namespace {

// A piece that is larger than what is asked for may be taken for it where at
// most an eighth of it is left over.
constexpr std::size_t kMostSpare = 8;

std::size_t PageBytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t MostKept() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::size_t>(pages) / 4 * PageBytes() : 0;
}

void Unmap(KeptMemory::Piece piece) { munmap(piece.memory, piece.bytes); }

// A thread that takes no signal: they are for the program's own.
bool StartWithoutSignals(void (*run)(KeptMemory*), KeptMemory* memory) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  bool started = true;
  try {
    std::thread(run, memory).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

KeptMemory& KeptMemory::Of() {
  static auto* const memory = new KeptMemory;
  return *memory;
}

KeptMemory::KeptMemory()
    : process_(getpid()), page_(PageBytes()), limit_(MostKept()) {}

bool KeptMemory::Forked() const { return getpid() != process_; }

KeptMemory::Piece KeptMemory::Take(std::size_t bytes) {
  const std::size_t wanted = (bytes + page_ - 1) / page_ * page_;
  if (wanted < bytes || wanted == 0) return {};
  // The lock may have been held by a thread that the child does not have.
  if (!Forked()) {
    const absl::MutexLock lock(&mu_);
    const auto it = by_size_.lower_bound(wanted);
    if (it != by_size_.end() && it->first - wanted <= it->first / kMostSpare) {
      return Remove(it->second);
    }
  }
  void* const memory = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? Piece{} : Piece{memory, wanted};
}

void KeptMemory::GiveBack(Piece piece) {
  if (Forked() || piece.bytes > limit_ ||
      madvise(piece.memory, piece.bytes, MADV_FREE) != 0) {
    Unmap(piece);
    return;
  }
  // The destructor of an array may not throw.
  try {
    Keep(piece);
  } catch (const std::bad_alloc&) {
    Unmap(piece);
  }
}

void KeptMemory::Keep(Piece piece) {
  std::vector<Piece> gone;
  const absl::Cleanup unmap = [&gone] {
    for (const Piece& old : gone) Unmap(old);
  };
  const absl::MutexLock lock(&mu_);
  while (!by_age_.empty() && bytes_ + piece.bytes > limit_) {
    gone.reserve(gone.size() + 1);
    gone.push_back(Remove(by_age_.begin()));
  }
  gone.reserve(gone.size() + 1);
  by_age_.push_back({piece, absl::Now()});
  absl::Cleanup undo = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    by_age_.pop_back();
  };
  by_size_.emplace(piece.bytes, std::prev(by_age_.end()));
  std::move(undo).Cancel();
  bytes_ += piece.bytes;
  if (!has_thread_) {
    has_thread_ = StartWithoutSignals(
        [](KeptMemory* memory) { memory->DropIdle(); }, this);
    // Nobody would drop it.
    if (!has_thread_) gone.push_back(Remove(std::prev(by_age_.end())));
  }
}

void KeptMemory::DropIdle() {
  for (;;) {
    std::vector<Piece> gone;
    {
      const absl::MutexLock lock(&mu_);
      while (!by_age_.empty() && by_age_.front().since + idle_ <= absl::Now()) {
        gone.push_back(Remove(by_age_.begin()));
      }
      if (gone.empty()) {
        if (by_age_.empty()) {
          has_thread_ = false;
          return;
        }
        changed_.WaitWithDeadline(&mu_, by_age_.front().since + idle_);
      }
    }
    for (const Piece& piece : gone) Unmap(piece);
  }
}

KeptMemory::Piece KeptMemory::Remove(ByAge::iterator it) {
  const Piece piece = it->piece;
  auto [begin, end] = by_size_.equal_range(piece.bytes);
  for (; begin != end; ++begin) {
    if (begin->second != it) continue;
    by_size_.erase(begin);
    break;
  }
  by_age_.erase(it);
  bytes_ -= piece.bytes;
  return piece;
}

std::size_t KeptMemory::kept() const {
  if (Forked()) return 0;
  const absl::MutexLock lock(&mu_);
  return bytes_;
}

void KeptMemory::SetIdle(absl::Duration idle) {
  if (Forked()) return;
  const absl::MutexLock lock(&mu_);
  idle_ = idle;
  changed_.SignalAll();
}

}  // namespace ckptree::python
