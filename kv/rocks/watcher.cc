// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/watcher.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kv/files/status.h"
#include "kv/rewrite_filter.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"

namespace ckptree::kv {
namespace {

class Listener : public rocksdb::EventListener {
 public:
  explicit Listener(std::shared_ptr<Watcher> watcher)
      : watcher_(std::move(watcher)) {}

  // RocksDB would resume by itself after a full disk: what the index has would
  // then no longer be known.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  void OnTableFileCreationStarted(
      const rocksdb::TableFileCreationBriefInfo& info) override {
    if (info.reason == rocksdb::TableFileCreationReason::kFlush &&
        watcher_->events().flushing) {
      watcher_->events().flushing(info.file_path);
    }
  }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo&) override {
    Changed();
  }
  void OnCompactionCompleted(rocksdb::DB*,
                             const rocksdb::CompactionJobInfo&) override {
    Changed();
  }
  void OnTableFileDeleted(const rocksdb::TableFileDeletionInfo& info) override {
    if (watcher_->events().removed) watcher_->events().removed(info.file_path);
  }

  void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                         rocksdb::Status* error) override {
    if (reason == rocksdb::BackgroundErrorReason::kCompaction &&
        (error->IsCorruption() || error->IsIOError() || error->IsNoSpace() ||
         RewriteScope::Active())) {
      // A damaged block, one that the disk cannot give, or a full disk must not
      // stop the saves: the compaction failed and changed nothing. Where it was
      // the MANIFEST that failed, the guard file system has spoken already.
      // RocksDB tries again every second: the same words are said once.
      const bool full = error->IsNoSpace();
      std::string text =
          (full ? "a compaction waits for room: " : "compaction failed: ") +
          error->ToString();
      const absl::MutexLock lock(&mutex_);
      if (text != said_) {
        watcher_->Log(full ? Severity::kWarning : Severity::kError, text);
      }
      said_ = std::move(text);
      *error = rocksdb::Status::OK();
      return;
    }
    watcher_->Fail(ToStatus(*error, "background work failed"));
  }

 private:
  void Changed() {
    if (watcher_->events().changed) watcher_->events().changed();
  }

  const std::shared_ptr<Watcher> watcher_;
  absl::Mutex mutex_;
  std::string said_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void Watcher::Fail(absl::Status status) {
  if (status.ok()) return;
  bool log = false;
  {
    const absl::MutexLock lock(&mutex_);
    log = opened_;
    if (failure_.ok()) failure_ = status;
  }
  if (log) Log(Severity::kError, std::string(status.message()));
}

void Watcher::Opened() {
  absl::Status failed;
  {
    const absl::MutexLock lock(&mutex_);
    opened_ = true;
    failed = failure_;
  }
  if (!failed.ok()) Log(Severity::kError, std::string(failed.message()));
}

void Watcher::Pardon() {
  const absl::MutexLock lock(&mutex_);
  failure_ = absl::OkStatus();
  abandoned_ = false;
}

absl::Status Watcher::health() const {
  const absl::MutexLock lock(&mutex_);
  if (failure_.ok() && abandoned_.load()) {
    return absl::ResourceExhaustedError(
        "memory ran out while this process changed or read the store: close "
        "it and open it again; what was committed is there");
  }
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
