// SPDX-License-Identifier: Apache-2.0

// Step 2 of the save protocol (core/save/README.md), on a thread of its own:
// copies what was not lent into the staging pool.

#ifndef CKPTREE_CORE_SAVE_STAGER_H_
#define CKPTREE_CORE_SAVE_STAGER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/options.h"
#include "core/process/arena.h"
#include "core/process/logger.h"
#include "core/save/save.h"
#include "core/save/staging_pool.h"
#include "kv/database.h"

namespace ckptree::internal {

// Thread-safe.
class Stager {
 public:
  // All of it outlives the stager. Memory goes back once no save was in flight
  // for `idle`.
  Stager(const kv::Database* database, Arena* arena, StagingPool* pool,
         absl::Duration idle, const Logger* logger);
  // Stop().
  ~Stager();

  // Copies the content of `save`, after those that were added before it. Does
  // not wake the thread where Commit() copied it all.
  void Add(const std::shared_ptr<Save>& save);
  // One of the saves that were added is over.
  void Ended();
  // Copies what there is and ends the thread.
  void Stop();

  // Adds bytes_staged and seconds_staging.
  void AddTo(Stats* stats) const;

 private:
  void Loop();
  void TrimWhenIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StageOne(const std::shared_ptr<Save>& save);
  std::size_t CopyThreads(const StagedContent& content) const;
  void CopyHost(const Save& save, StagedContent* content);
  void Fetch(const Save& save, StagedContent* content);
  // The runs or the chunks. False where one failed.
  static bool FetchPieces(const Save& save, StagedContent* content, bool run);

  bool CanStage() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return stopping_ || !queue_.empty();
  }
  bool CanBegin() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return CanStage() || pool_used_;
  }
  bool CanStageOrIsIdle() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return CanStage() || in_flight_ == 0;
  }

  const kv::Database* const database_;
  Arena* const arena_;
  StagingPool* const pool_;
  const absl::Duration idle_;
  const Logger* const logger_;

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::shared_ptr<Save>> queue_ ABSL_GUARDED_BY(mu_);
  std::uint64_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool pool_used_ ABSL_GUARDED_BY(mu_) = false;  // Since the last Trim().
  absl::Time last_ended_ ABSL_GUARDED_BY(mu_);
  std::uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_STAGER_H_
