// SPDX-License-Identifier: Apache-2.0

// How often each file was synced, and which are so in vain.

#ifndef CKPTREE_KV_TESTING_SYNC_COUNTS_H_
#define CKPTREE_KV_TESTING_SYNC_COUNTS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ckptree::kv {

// Thread-safe.
class SyncCounts {
 public:
  // Of files whose name begins so.
  int Of(const std::string& name) const;
  // False where it were not so many within `patience`.
  bool WaitFor(const std::string& name, int syncs,
               absl::Duration patience) const;

  // From now on the syncs of files whose name begins so fail.
  void Fail(const std::string& name);

  // False where it is to fail.
  bool Count(const std::string& path);

 private:
  int Sum(const std::string& name) const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::map<std::string, int> syncs_ ABSL_GUARDED_BY(mu_);  // By name.
  std::string failing_ ABSL_GUARDED_BY(mu_);               // Empty: none.
};

// For Options::file_system: the real one. `counts` must outlive it.
std::shared_ptr<void> MakeSyncCountingDisk(SyncCounts* counts);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_SYNC_COUNTS_H_
