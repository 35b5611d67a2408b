// SPDX-License-Identifier: Apache-2.0

#include "core/manage/preemption.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::internal {
namespace {

// All that the handler touches. The old action is written before the handler
// can run.
std::atomic<bool> noticed{false};
static_assert(std::atomic<bool>::is_always_lock_free);
std::atomic_flag handling = ATOMIC_FLAG_INIT;
std::atomic<pid_t> owner{0};  // A forked child has the handler, and no watch.
struct sigaction previous;

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);
int watches ABSL_GUARDED_BY(mu) = 0;

void Handle(int signal, siginfo_t* info, void* context) {
  // Who took our place may call us, and be the one whom we call.
  if (handling.test_and_set()) return;
  const int error = errno;
  noticed.store(true);
  const bool by_default =
      (previous.sa_flags & SA_SIGINFO) == 0 && previous.sa_handler == SIG_DFL;
  if (by_default && getpid() != owner.load()) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // Delivered when this returns.
  } else if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) {
      previous.sa_sigaction(signal, info, context);
    }
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
  errno = error;
  handling.clear();
}

}  // namespace

SigtermWatch::SigtermWatch() {
  const absl::MutexLock lock(&mu);
  if (watches++ > 0) return;
  noticed.store(false);
  owner.store(getpid());
  sigaction(SIGTERM, nullptr, &previous);
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

SigtermWatch::~SigtermWatch() {
  const absl::MutexLock lock(&mu);
  if (--watches > 0) return;
  struct sigaction now;
  sigaction(SIGTERM, nullptr, &now);
  const bool ours =
      (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == Handle;
  if (ours) sigaction(SIGTERM, &previous, nullptr);
}

bool SigtermWatch::Noticed() { return noticed.load(); }

}  // namespace ckptree::internal
