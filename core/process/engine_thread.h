// SPDX-License-Identifier: Apache-2.0

// Which threads are the engine's own.

#ifndef CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_
#define CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_

#include "kv/database.h"

namespace ckptree::internal {

// Marks the thread that makes it as one that works for `database` while it
// lives: a callback that runs there must not wait for the thread's end.
class EngineThread {
 public:
  explicit EngineThread(const kv::Database* database) { of_ = database; }
  ~EngineThread() { of_ = nullptr; }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  static bool IsOf(const kv::Database* database) {
    return database != nullptr && of_ == database;
  }

 private:
  static inline thread_local const kv::Database* of_ = nullptr;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_ENGINE_THREAD_H_
