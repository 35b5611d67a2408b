// SPDX-License-Identifier: Apache-2.0

// Which threads are the engine's own.

#ifndef CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_
#define CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_

#include "core/process/thread_mark.h"

namespace ckptree::internal {

// Of a thread that works for a database: a callback that runs there must not
// wait for the thread's end.
using EngineThread = ThreadMark<struct EngineRole>;

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_
