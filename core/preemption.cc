#include "core/preemption.h"

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
struct sigaction previous;

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);
int watches ABSL_GUARDED_BY(mu) = 0;

void Handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  noticed.store(true);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) {
      previous.sa_sigaction(signal, info, context);
    }
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
  errno = error;
}

}  // namespace

SigtermWatch::SigtermWatch() {
  const absl::MutexLock lock(&mu);
  if (watches++ > 0) return;
  noticed.store(false);
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
