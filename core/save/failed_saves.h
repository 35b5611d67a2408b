// SPDX-License-Identifier: Apache-2.0

// Saves that failed, until somebody was told.

#ifndef CKPTREE_CORE_SAVE_FAILED_SAVES_H_
#define CKPTREE_CORE_SAVE_FAILED_SAVES_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/save/save.h"

namespace ckptree::internal {

// Thread-safe.
class FailedSaves {
 public:
  // Before its end is told: who sees it and asks for the failure finds it.
  void Add(const std::shared_ptr<Save>& save) {
    const absl::MutexLock lock(&mu_);
    saves_.push_back(save);
  }

  // The oldest failure that nobody saw; with `only_dropped` of saves that have
  // no handle any more. OK where there is none. `whose`, where it is not null:
  // the save, for PutBack().
  absl::Status Take(bool only_dropped, std::shared_ptr<Save>* whose = nullptr) {
    const absl::MutexLock lock(&mu_);
    std::erase_if(saves_, [](const std::shared_ptr<Save>& save) {
      return save->is_of_manager.load() ||
             (save->Done() && !save->FailedUnseen());
    });
    for (auto it = saves_.begin(); it != saves_.end(); ++it) {
      if (!(*it)->FailedUnseen()) continue;  // It has not ended.
      if (only_dropped && (*it)->HasHandle()) continue;
      absl::Status status = (*it)->TakeFailure();
      if (whose != nullptr) *whose = *it;
      saves_.erase(it);
      return status;
    }
    return absl::OkStatus();
  }

  // Whoever took it told nobody.
  void PutBack(const std::shared_ptr<Save>& save) {
    save->PutFailureBack();
    const absl::MutexLock lock(&mu_);
    saves_.insert(saves_.begin(), save);
  }

 private:
  absl::Mutex mu_;
  std::vector<std::shared_ptr<Save>> saves_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_FAILED_SAVES_H_
