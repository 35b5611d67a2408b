#include "kv/watcher.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kv/rewrite_filter.h"
#include "kv/status.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

class Listener : public rocksdb::EventListener {
 public:
  explicit Listener(std::shared_ptr<Watcher> watcher)
      : watcher_(std::move(watcher)) {}

  void OnFlushCompleted(rocksdb::DB*,
                        const rocksdb::FlushJobInfo& info) override {
    for (const schema::Space space :
         {schema::Space::kRecords, schema::Space::kSmall}) {
      if (info.cf_name ==
          schema::kSpaceNames[static_cast<std::size_t>(space)]) {
        watcher_->Flushed(space, info.largest_seqno);
      }
    }
  }

  // RocksDB would resume by itself after a full disk: it flushes one space and
  // starts a new log behind the torn one, and no open can sort that out.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                         rocksdb::Status* error) override {
    if (reason == rocksdb::BackgroundErrorReason::kCompaction &&
        (error->IsCorruption() || RewriteScope::Active())) {
      // A damaged block or a full disk that collection met must not stop the
      // saves: the compaction failed and changed nothing. Where it was the
      // MANIFEST that failed, the guard file system has spoken already.
      watcher_->Log(Severity::kError,
                    "compaction failed: " + error->ToString());
      *error = rocksdb::Status::OK();
      return;
    }
    watcher_->Fail(ToStatus(*error, "background work failed"));
  }

 private:
  const std::shared_ptr<Watcher> watcher_;
};

}  // namespace

void Watcher::Start(std::uint64_t ordinal) {
  const absl::MutexLock lock(&mutex_);
  newest_ = ordinal;
  records_.clear();
  small_.clear();
}

void Watcher::Expect(std::uint64_t ordinal, bool small,
                     std::uint64_t first_sequence) {
  const absl::MutexLock lock(&mutex_);
  newest_ = ordinal;
  records_.push_back({ordinal, first_sequence});
  if (small) small_.push_back({ordinal, first_sequence});
}

void Watcher::Flushed(schema::Space space, std::uint64_t last_sequence) {
  const absl::MutexLock lock(&mutex_);
  std::deque<Pending>& pending =
      space == schema::Space::kSmall ? small_ : records_;
  // A batch is never cut by the switch to a new memory table, so its first
  // number tells for all of it.
  while (!pending.empty() && pending.front().first_sequence <= last_sequence) {
    pending.pop_front();
  }
}

std::uint64_t Watcher::small_safe() const {
  const absl::MutexLock lock(&mutex_);
  return small_.empty() ? newest_ : small_.front().ordinal - 1;
}

std::uint64_t Watcher::flushed() const {
  const absl::MutexLock lock(&mutex_);
  std::uint64_t oldest = newest_ + 1;
  if (!small_.empty()) oldest = std::min(oldest, small_.front().ordinal);
  if (!records_.empty()) oldest = std::min(oldest, records_.front().ordinal);
  return oldest - 1;
}

void Watcher::Fail(absl::Status status) {
  if (status.ok()) return;
  Log(Severity::kError, std::string(status.message()));
  const absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(status);
}

absl::Status Watcher::health() const {
  const absl::MutexLock lock(&mutex_);
  return failure_;
}

void Watcher::Log(Severity severity, std::string_view text) const {
  if (log_) log_(severity, text);
}

std::shared_ptr<rocksdb::EventListener> MakeListener(
    std::shared_ptr<Watcher> watcher) {
  return std::make_shared<Listener>(std::move(watcher));
}

}  // namespace ckptree::kv
