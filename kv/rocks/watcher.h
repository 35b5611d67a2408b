// SPDX-License-Identifier: Apache-2.0

// What RocksDB's background work reports.

#ifndef CKPTREE_KV_ROCKS_WATCHER_H_
#define CKPTREE_KV_ROCKS_WATCHER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"

namespace rocksdb {
class EventListener;
}  // namespace rocksdb

namespace ckptree::kv {

// What becomes of tables. Called in RocksDB's threads, which hold no lock of
// its then.
struct TableEvents {
  std::function<void()> changed;  // A flush or a compaction made others.
  std::function<void(std::string_view path)> removed;
  std::function<void(std::string_view path)> flushing;  // It is about to.
};

// Knows the first error that makes the handle dead.
//
// Thread-safe, but for Follow().
class Watcher {
 public:
  explicit Watcher(LogFn log) : log_(std::move(log)) {}

  // Once, before anything is opened.
  void Follow(TableEvents events) { events_ = std::move(events); }
  const TableEvents& events() const { return events_; }

  // Makes the handle dead; the first one counts. Logged where the handle is
  // open: until then an open returns it, or tries again.
  void Fail(absl::Status status);
  // The same where there is no memory for a status of its own: what this
  // process knows of the store may no longer be what is there. Never throws.
  void Abandon() { abandoned_ = true; }
  void Opened();
  absl::Status health() const;
  // Forgets what failed: an open that is tried again, with another instance.
  void Pardon();

  void Log(Severity severity, std::string_view text) const;

 private:
  const LogFn log_;
  std::atomic<bool> abandoned_ = false;
  TableEvents events_;
  mutable absl::Mutex mutex_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

std::shared_ptr<rocksdb::EventListener> MakeListener(
    std::shared_ptr<Watcher> watcher);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_WATCHER_H_
