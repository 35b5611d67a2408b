// SPDX-License-Identifier: Apache-2.0

// A file system that changes nothing by name once the store is not at its name
// any more.

#ifndef CKPTREE_KV_ROCKS_PLACE_GUARD_H_
#define CKPTREE_KV_ROCKS_PLACE_GUARD_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"
#include "kv/store_lock.h"

namespace ckptree::kv {

// Whether a store still is where it was opened. Thread-safe.
class StorePlace {
 public:
  // From now on, as long as the lock is held.
  void Watch(const std::shared_ptr<StoreLock>& lock);
  // As StoreLock::Check(); OK where no lock is held.
  absl::Status Check() const;

 private:
  mutable absl::Mutex mu_;
  std::weak_ptr<StoreLock> lock_ ABSL_GUARDED_BY(mu_);
};

// `options` with its file system wrapped: what would make, remove or rename a
// file or directory asks `place` first. Somebody may have moved the store away
// and made another one at its name, which must not be touched. Files that are
// open are those of the store, wherever it is.
Options InPlace(const Options& options, std::shared_ptr<StorePlace> place);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_PLACE_GUARD_H_
