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
//
// Thread-safe.
void NoteUse();

// kFailedPrecondition where this process was forked off by one that had opened
// a store, open or closed: RocksDB would wait for background threads that
// stayed with the parent. Reading needs none.
absl::Status CheckMayWrite(const std::string& directory);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_PROCESS_USE_H_
