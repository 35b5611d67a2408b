// SPDX-License-Identifier: Apache-2.0

#include "tools/output/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>

namespace ckptree::tools {
namespace {

// Read by the handler: lock-free atomics and a buffer that is whole whenever
// `remove_path` is set.
std::atomic<int> interrupted_by = 0;
std::atomic<bool> is_interruptible = false;
std::atomic<bool> line_shown = false;
std::atomic<bool> remove_path = false;
std::array<char, 4096> path_to_remove;

extern "C" void OnSignal(int signal) {
  int nothing = 0;
  const bool first = interrupted_by.compare_exchange_strong(nothing, signal);
  if (is_interruptible && first) return;
  constexpr char kClear[] = "\r\x1b[K";
  if (line_shown) {
    [[maybe_unused]] const ssize_t n =
        ::write(STDERR_FILENO, kClear, sizeof kClear - 1);
  }
  if (remove_path) ::unlink(path_to_remove.data());
  ::_exit(128 + signal);
}

}  // namespace

void HandleSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A terminal that is closed, unless nohup says that it does not matter.
  struct sigaction there {};
  if (::sigaction(SIGHUP, nullptr, &there) == 0 &&
      there.sa_handler != SIG_IGN) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  // Beyond the limit of a file a write fails, as on a full disk.
  ::sigaction(SIGXFSZ, &action, nullptr);
}

bool Interrupted() { return interrupted_by != 0; }

int ExitCodeOfInterrupt() { return 128 + interrupted_by; }

Interruptible::Interruptible() { is_interruptible = true; }
Interruptible::~Interruptible() { is_interruptible = false; }

SpawnedSignals::SpawnedSignals() {
  posix_spawnattr_init(&attributes_);
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  sigaddset(&ignored, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes_, &ignored);
  posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
}

void RemoveOnInterrupt(const std::string& path) {
  remove_path = false;
  if (path.empty() || path.size() + 1 > path_to_remove.size()) return;
  std::memcpy(path_to_remove.data(), path.c_str(), path.size() + 1);
  remove_path = true;
}

void SetLineShown(bool shown) { line_shown = shown; }

}  // namespace ckptree::tools
