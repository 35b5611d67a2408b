// SPDX-License-Identifier: Apache-2.0

#include "core/save/stager.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/process/disk_threads.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "kv/monotonic.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {
namespace {

// While one piece is on its way from a device the next is asked for, and memory
// is got for a third.
constexpr std::size_t kFetches = 4;

// A thread is started in the time in which a small part of this is copied.
constexpr std::uint64_t kBytesForOne = 8 << 20;

}  // namespace

Stager::Stager(const kv::Database* database, Arena* arena, StagingPool* pool,
               absl::Duration idle, const Logger* logger)
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
  const std::shared_ptr<StagedContent> content = save->staged_content();
  if (content != nullptr && save->Copied()) {
    bytes_ += content->staged_bytes();
    pool_used_ = true;
  } else {
    queue_.push_back(save);
  }
  ++in_flight_;
}

void Stager::Ended() {
  const absl::MutexLock lock(&mu_);
  --in_flight_;
  last_ended_ = kv::MonotonicNow();
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

// Memory stays while saves follow each other: a page that was touched is filled
// faster than a fresh one. Saves that Commit() copies do not wake the thread
// that waits here; it looks again when it would be time.
void Stager::TrimWhenIdle() {
  if (in_flight_ == 0 && kv::MonotonicNow() - last_ended_ >= idle_) {
    pool_->Trim();
    pool_used_ = false;
    return;
  }
  const absl::Duration left =
      in_flight_ == 0 ? last_ended_ + idle_ - kv::MonotonicNow() : idle_;
  if (kv::AwaitFor(mu_, absl::Condition(this, &Stager::CanStage), left)) {
    return;
  }
  mu_.Await(absl::Condition(this, &Stager::CanStageOrIsIdle));
}

void Stager::Loop() {
  const EngineThread here(database_);
  while (true) {
    std::shared_ptr<Save> save;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Stager::CanBegin));
      if (!CanStage()) {
        TrimWhenIdle();
        continue;
      }
      if (queue_.empty()) return;
      pool_used_ = true;
      save = std::move(queue_.front());
      queue_.pop_front();
    }
    const absl::Status status = GuardedStatus("staging", [&] {
      StageOne(save);
      return absl::OkStatus();
    });
    save->SetCopyEnded();
    // What was not copied is read in place, at the save's turn.
    if (!status.ok()) logger_->Log(LogSeverity::kWarning, "save", status);
  }
}

void Stager::StageOne(const std::shared_ptr<Save>& save) {
  const std::shared_ptr<StagedContent> content = save->staged_content();
  if (content == nullptr) return;  // Already over.
  const absl::Time start = kv::MonotonicNow();
  if (content->fetched_count() < content->piece_count()) {
    CopyHost(*save, content.get());
  }
  save->SetCopyEnded();
  if (content->fetched_count() > 0) Fetch(*save, content.get());
  const absl::MutexLock lock(&mu_);
  bytes_ += content->staged_bytes();
  seconds_ += absl::ToDoubleSeconds(kv::MonotonicNow() - start);
}

// Copies until the pool is full; what is left is read in place when the save
// has its turn, so a full pool delays the caller and blocks nobody.
void Stager::CopyHost(const Save& save, StagedContent* content) {
  std::atomic<bool> full{false};
  std::atomic<std::size_t> next{0};
  RunOnDiskThreads(CopyThreads(*content), [&] {
    while (!full.load(std::memory_order_relaxed) && !save.cancelled()) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= content->piece_count()) return;
      if (content->fetched(i)) continue;
      bool copied = false;
      GuardedStatus("staging", [&]() -> absl::Status {
        CKPTREE_ASSIGN_OR_RETURN(copied, content->Stage(i));
        return absl::OkStatus();
      }).IgnoreError();
      if (!copied) full.store(true);
    }
  });
}

// As many as there are processors, and no more than there is work for. They are
// no tasks of the arena: the caller waits for them, and nobody for the save
// before, whose tasks have the arena.
std::size_t Stager::CopyThreads(const StagedContent& content) const {
  const auto most = static_cast<std::uint64_t>(arena_->max_concurrency());
  const std::uint64_t worth = content.content().bytes / kBytesForOne;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(worth, 1, most));
}

// What only a function can copy cannot be read in place: where the pool is full
// this goes on as room comes free, ahead of the save. Whoever copies out of a
// device mostly waits for it, and nobody waits for this thread but later saves,
// which have their turn later, too.
void Stager::Fetch(const Save& save, StagedContent* content) {
  // Runs first, all of them: the save looks at them twice, so they have the
  // room of the pool before the chunks fill it.
  for (const bool run : {true, false}) {
    if (!FetchPieces(save, content, run)) return;
  }
}

bool Stager::FetchPieces(const Save& save, StagedContent* content, bool run) {
  std::vector<std::size_t> pieces;
  for (std::size_t i = 0; i < content->piece_count(); ++i) {
    if (content->fetched(i) && content->piece(i).run == run) {
      pieces.push_back(i);
    }
  }
  if (pieces.empty()) return true;
  std::atomic<bool> failed{false};
  std::atomic<std::size_t> next{0};
  RunOnDiskThreads(std::min(pieces.size(), kFetches), [&] {
    while (!save.cancelled()) {
      const std::size_t i = next.fetch_add(1);
      if (i >= pieces.size()) return;
      // What fails does so again at the save's turn, where it fails the save;
      // without memory for the pool that copies into its own.
      const absl::Status status = GuardedStatus(
          "staging", [&] { return content->StageFetched(pieces[i]); });
      if (!status.ok()) {
        failed.store(true);
        next.store(pieces.size());
      }
    }
  });
  return !failed.load();
}

}  // namespace ckptree::internal
