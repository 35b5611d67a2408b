// What RocksDB's background work reports.

#ifndef CKPTREE_KV_WATCHER_H_
#define CKPTREE_KV_WATCHER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace rocksdb {
class EventListener;
}  // namespace rocksdb

namespace ckptree::kv {

// Knows which commits have left the log, and the first error that makes the
// handle dead.
//
// Thread-safe.
class Watcher {
 public:
  explicit Watcher(LogFn log) : log_(std::move(log)) {}

  // All commits up to `ordinal` are in files: the state after an open.
  void Start(std::uint64_t ordinal);

  // Before a commit is written: its first sequence number.
  void Expect(std::uint64_t ordinal, bool small, std::uint64_t first_sequence);

  // A flush of `space` wrote everything up to `last_sequence` to a file.
  void Flushed(schema::Space space, std::uint64_t last_sequence);

  // Newest ordinal up to which every block in `small` is in a file.
  std::uint64_t small_safe() const;
  // The same for everything.
  std::uint64_t flushed() const;

  // Makes the handle dead; the first one counts.
  void Fail(absl::Status status);
  absl::Status health() const;

  void Log(Severity severity, std::string_view text) const;

 private:
  struct Pending {
    std::uint64_t ordinal;
    std::uint64_t first_sequence;
  };

  const LogFn log_;
  mutable absl::Mutex mutex_;
  std::uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  // Commits with something in the memory tables, oldest first.
  std::deque<Pending> records_ ABSL_GUARDED_BY(mutex_);
  std::deque<Pending> small_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

std::shared_ptr<rocksdb::EventListener> MakeListener(
    std::shared_ptr<Watcher> watcher);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_WATCHER_H_
