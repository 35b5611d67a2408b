// SPDX-License-Identifier: Apache-2.0

// What a thread does for a store, while it does.

#ifndef CKPTREE_CORE_PROCESS_THREAD_MARK_H_
#define CKPTREE_CORE_PROCESS_THREAD_MARK_H_

#include "kv/database.h"

namespace ckptree::internal {

// Marks the thread that makes it, for `database`, while it lives. `Role` tells
// the marks of one kind from others.
template <typename Role>
class ThreadMark {
 public:
  explicit ThreadMark(const kv::Database* database) : before_(of_) {
    of_ = database;
  }
  ~ThreadMark() { of_ = before_; }
  ThreadMark(const ThreadMark&) = delete;
  ThreadMark& operator=(const ThreadMark&) = delete;

  static bool IsOf(const kv::Database* database) {
    return database != nullptr && of_ == database;
  }

 private:
  static inline thread_local const kv::Database* of_ = nullptr;

  const kv::Database* const before_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_THREAD_MARK_H_
