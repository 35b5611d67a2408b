// SPDX-License-Identifier: Apache-2.0

// Stores that are still open when the program ends.

#ifndef CKPTREE_CORE_PROCESS_CLOSE_AT_EXIT_H_
#define CKPTREE_CORE_PROCESS_CLOSE_AT_EXIT_H_

#include <functional>

#include "absl/status/status.h"

namespace ckptree::internal {

// A store may be in an object that main() does not see go: a global, or one
// that nobody deletes. Such an object was made before RocksDB made its own
// statics (its Env and threads, in the first open), so that C++ destroys it
// after them; closing it then ends the process by a signal and loses the save
// in flight. So what is open is closed before them, as its destructor would: by
// a function of atexit() that is registered once they are there. Nothing in a
// process that was forked off. `close` must not wait where it is called by what
// it would wait for, as in a callback that calls exit().
//
// REQUIRES: a database was opened. Both are thread-safe.
void CloseAtExit(const void* owner, std::function<void()> close);

// Before the owner is destroyed: waits where it is just being closed.
void NeedNotCloseAtExit(const void* owner);

// kFailedPrecondition from the moment on that all were closed: a function that
// a program gave to atexit() before its first open comes later than that, when
// RocksDB's statics are gone, and opening a store would end the process by a
// signal. Thread-safe.
absl::Status CheckMayOpen();

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_CLOSE_AT_EXIT_H_
