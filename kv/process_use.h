// SPDX-License-Identifier: Apache-2.0

// What a process must know of itself before it opens a store.

#ifndef CKPTREE_KV_PROCESS_USE_H_
#define CKPTREE_KV_PROCESS_USE_H_

#include <string>

#include "absl/status/status.h"

namespace ckptree::kv {

// Called before a store is opened, whatever for. Once is enough for a process:
//
// * A child that is forked off later ends without the destructors of the
//   statics that there were at the fork, RocksDB's among them, which would
//   wait for threads that it does not have: what was registered in the child
//   runs, stdio is flushed, and the process ends.
// * The descriptors 0, 1 and 2 are held open (on /dev/null) where they were
//   closed: a file of the store that got one of them would be written to by
//   whatever prints.
// * In a release build Abseil stops looking for cycles among its mutexes. As it
//   is packaged by Debian it looks, at each lock of each: four times the time
//   of a lock, forty times where two threads lock whatever, and a child that is
//   forked then may wait for ever. Who wants it calls
//   absl::SetMutexDeadlockDetectionMode() behind the first open.
//
// Thread-safe.
void NoteUse();

// Whether this process was forked off by one that had opened a store, open or
// closed. It takes no system call.
bool WasForked();

// While one lives, a fork() of another thread waits, for a second at most: the
// child would have locks of libraries as that one had left them, for ever. For
// what is short and takes many of them, as opening a store. Others wait for the
// fork; a thread that has one does not.
class ForkHold {
 public:
  ForkHold();
  ~ForkHold();
  ForkHold(const ForkHold&) = delete;
  ForkHold& operator=(const ForkHold&) = delete;
};

// kFailedPrecondition where this process was forked off by one that had opened
// a store, open or closed: RocksDB would wait for background threads that
// stayed with the parent. Reading needs none.
absl::Status CheckMayWrite(const std::string& directory);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_PROCESS_USE_H_
