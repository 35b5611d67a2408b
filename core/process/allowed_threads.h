// SPDX-License-Identifier: Apache-2.0

// More threads of TBB than there are processors.

#ifndef CKPTREE_CORE_PROCESS_ALLOWED_THREADS_H_
#define CKPTREE_CORE_PROCESS_ALLOWED_THREADS_H_

namespace ckptree::internal {

// From now on an arena of this process may have `threads`. TBB allows as many
// as there are processors by itself, and prints a warning for an arena of more.
// What was allowed once stays allowed. A smaller limit that the program set for
// itself (tbb::global_control) still holds. Thread-safe.
void AllowThreads(int threads);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_ALLOWED_THREADS_H_
