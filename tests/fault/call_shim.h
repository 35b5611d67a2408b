// SPDX-License-Identifier: Apache-2.0

// What the preloaded call_shim.cc is told and tells.

#ifndef CKPTREE_TESTS_FAULT_CALL_SHIM_H_
#define CKPTREE_TESTS_FAULT_CALL_SHIM_H_

#include <atomic>
#include <cstdint>

namespace ckptree::testing {

// The environment of the program:
//   CKPTREE_SHIM_COUNTS  a file that holds a ShimCounts
//   CKPTREE_SHIM_UNDER   only calls on files in or below this folder count
//   CKPTREE_SHIM_DOES    one of the names below; nothing else: only count
//   CKPTREE_SHIM_ONLY    only calls of this name count: write, sync, unlink,
//   ... CKPTREE_SHIM_AT      the call it happens at, from 1 CKPTREE_SHIM_VALUE
//   an errno or a signal CKPTREE_SHIM_READS   set: opening to read and reading
//   count too
//
//   kill       SIGKILL before the call
//   signal     that signal before the call, which then is made
//   fail       the call fails and does nothing (a close closes)
//   fail_on    so does every call from then on
//   interrupt  every read, write and open fails with EINTR first, and then
//              reads or writes half of what was asked
struct ShimCounts {
  std::atomic<std::uint64_t> calls;
  std::atomic<std::uint64_t> fired;
  char fired_at[512];  // "write /path", of the first.
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_CALL_SHIM_H_
