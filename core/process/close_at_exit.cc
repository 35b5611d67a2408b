// SPDX-License-Identifier: Apache-2.0

#include "core/process/close_at_exit.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/process_mark.h"

namespace ckptree::internal {
namespace {

class OpenOnes {
 public:
  // Those of this process: a child that was forked off has none. Never
  // destroyed, as they may go later than any static.
  static OpenOnes& Get() {
    if (OpenOnes* const known = Find()) return *known;
    OpenOnes* found = all_.load();
    auto* const made = new OpenOnes;
    if (all_.compare_exchange_strong(found, made)) return *made;
    delete made;
    return *found;
  }
  // Null: there are none.
  static OpenOnes* Find() {
    OpenOnes* const found = all_.load();
    return found != nullptr && found->mark_.Holds() ? found : nullptr;
  }

  void Add(const void* owner, std::function<void()> close) {
    const absl::MutexLock lock(&mutex_);
    open_[owner] = std::move(close);
  }

  void Remove(const void* owner) {
    const absl::MutexLock lock(&mutex_);
    const auto done = [this, owner]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return closing_ != owner;
    };
    mutex_.Await(absl::Condition(&done));
    open_.erase(owner);
  }

  void CloseAll() {
    while (const std::function<void()> close = Next()) {
      close();
      const absl::MutexLock lock(&mutex_);
      closing_ = nullptr;
    }
  }

 private:
  std::function<void()> Next() {
    const absl::MutexLock lock(&mutex_);
    if (open_.empty()) return nullptr;
    auto next = open_.extract(open_.begin());
    closing_ = next.key();
    return std::move(next.mapped());
  }

  static inline std::atomic<OpenOnes*> all_{nullptr};

  const kv::ProcessMark mark_;
  absl::Mutex mutex_;
  std::map<const void*, std::function<void()>> open_ ABSL_GUARDED_BY(mutex_);
  const void* closing_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

std::atomic<bool> all_closed = false;

void CloseAll() {
  OpenOnes::Get().CloseAll();
  all_closed = true;
}

}  // namespace

void CloseAtExit(const void* owner, std::function<void()> close) {
  static absl::once_flag once;
  absl::call_once(once, [] { static_cast<void>(std::atexit(CloseAll)); });
  OpenOnes::Get().Add(owner, std::move(close));
}

void NeedNotCloseAtExit(const void* owner) {
  // By a destructor, which must not need memory.
  if (OpenOnes* const open = OpenOnes::Find()) open->Remove(owner);
}

absl::Status CheckMayOpen() {
  if (!all_closed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program is ending, and its stores were closed: no store can be "
      "opened any more; a function of atexit() that opens one is to be "
      "registered after the first store was opened");
}

}  // namespace ckptree::internal
