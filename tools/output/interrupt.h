// SPDX-License-Identifier: Apache-2.0

// Ctrl-C.

#ifndef CKPTREE_TOOLS_OUTPUT_INTERRUPT_H_
#define CKPTREE_TOOLS_OUTPUT_INTERRUPT_H_

#include <spawn.h>

#include <string>

namespace ckptree::tools {

// SIGINT, SIGTERM and SIGHUP end the process with 130 (143, 129) at once, or,
// while an Interruptible lives, the first of them only makes Interrupted()
// true. SIGPIPE is ignored: writes report it. So is SIGHUP where it was, by
// nohup.
void HandleSignals();

// From the first Ctrl-C on.
bool Interrupted();

// 130, 143 or 129, by the first signal. REQUIRES: Interrupted().
int ExitCodeOfInterrupt();

// Work that asks Interrupted() now and then. One at a time.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

// For posix_spawn(): what is started has the signals that are ignored here as
// they are by default, which no shell could ask for.
class SpawnedSignals {
 public:
  SpawnedSignals();
  ~SpawnedSignals() { posix_spawnattr_destroy(&attributes_); }
  SpawnedSignals(const SpawnedSignals&) = delete;
  SpawnedSignals& operator=(const SpawnedSignals&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

// An unfinished file to remove when the process is interrupted; "" for none.
void RemoveOnInterrupt(const std::string& path);

// Whether standard error holds an unfinished line that has to be cleared.
void SetLineShown(bool shown);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_INTERRUPT_H_
