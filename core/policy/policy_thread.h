// SPDX-License-Identifier: Apache-2.0

// Which threads ask a policy, and so call functions of the user.

#ifndef CKPTREE_CORE_POLICY_POLICY_THREAD_H_
#define CKPTREE_CORE_POLICY_POLICY_THREAD_H_

#include "kv/database.h"

namespace ckptree::internal {

// Marks the thread that makes it as one that asks a policy of a store while it
// lives. It holds locks of that store, which a call of a function that is asked
// would wait for.
class PolicyThread {
 public:
  explicit PolicyThread(const kv::Database* database) : before_(of_) {
    of_ = database;
  }
  ~PolicyThread() { of_ = before_; }
  PolicyThread(const PolicyThread&) = delete;
  PolicyThread& operator=(const PolicyThread&) = delete;

  static bool IsOf(const kv::Database* database) {
    return database != nullptr && of_ == database;
  }

 private:
  static inline thread_local const kv::Database* of_ = nullptr;

  const kv::Database* const before_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_POLICY_POLICY_THREAD_H_
