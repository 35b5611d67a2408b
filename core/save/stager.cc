// SPDX-License-Identifier: Apache-2.0

#include "core/save/stager.h"

#include <atomic>
#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "kv/monotonic.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

namespace ckptree::internal {

Stager::Stager(const kv::Database* database, tbb::task_arena* arena,
               StagingPool* pool, absl::Duration idle, const Logger* logger)
    : database_(database),
      arena_(arena),
      pool_(pool),
      idle_(idle),
      logger_(logger) {
  thread_ = std::thread([this] { Loop(); });
}

Stager::~Stager() { Stop(); }

void Stager::Add(const std::shared_ptr<Save>& save) {
  const absl::MutexLock lock(&mu_);
  queue_.push_back(save);
  ++in_flight_;
}

void Stager::Ended() {
  const absl::MutexLock lock(&mu_);
  --in_flight_;
}

void Stager::Stop() {
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Stager::AddTo(Stats* stats) const {
  const absl::MutexLock lock(&mu_);
  stats->bytes_staged += bytes_;
  stats->seconds_staging += seconds_;
}

void Stager::Loop() {
  const EngineThread here(database_);
  while (true) {
    std::shared_ptr<Save> save;
    {
      const absl::MutexLock lock(&mu_);
      if (pool_used_) {
        // Memory stays while saves follow each other: a page that was touched
        // is filled faster than a fresh one.
        mu_.Await(absl::Condition(this, &Stager::CanStageOrIsIdle));
        if (!mu_.AwaitWithTimeout(absl::Condition(this, &Stager::CanStage),
                                  idle_)) {
          pool_->Trim();
          pool_used_ = false;
          continue;
        }
      }
      mu_.Await(absl::Condition(this, &Stager::CanStage));
      if (queue_.empty()) return;
      pool_used_ = true;
      save = std::move(queue_.front());
      queue_.pop_front();
    }
    const absl::Status status = GuardedStatus("staging", [&] {
      StageOne(save);
      return absl::OkStatus();
    });
    // What was not copied is read in place, at the save's turn.
    if (!status.ok()) logger_->Log(LogSeverity::kWarning, "save", status);
  }
}

// Copies until the pool is full; what is left is read in place when the save
// has its turn, so a full pool delays the caller and blocks nobody.
void Stager::StageOne(const std::shared_ptr<Save>& save) {
  const std::shared_ptr<StagedContent> content = save->staged_content();
  if (content == nullptr) return;  // Already over.
  const absl::Time start = kv::MonotonicNow();
  std::atomic<bool> full{false};
  arena_->execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, content->piece_count(), 1),
        [&](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t i = range.begin(); i != range.end(); ++i) {
            if (full.load(std::memory_order_relaxed) || save->cancelled()) {
              return;
            }
            // A copy function that fails does so again at the save's turn,
            // where it fails the save.
            bool copied = false;
            GuardedStatus("staging", [&]() -> absl::Status {
              CKPTREE_ASSIGN_OR_RETURN(copied, content->Stage(i));
              return absl::OkStatus();
            }).IgnoreError();
            if (!copied) full.store(true);
          }
        },
        tbb::simple_partitioner());
  });
  const absl::MutexLock lock(&mu_);
  bytes_ += content->staged_bytes();
  seconds_ += absl::ToDoubleSeconds(kv::MonotonicNow() - start);
}

}  // namespace ckptree::internal
