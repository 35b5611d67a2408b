// The state of an open database, for the files that implement it.

#ifndef CKPTREE_KV_DATABASE_IMPL_H_
#define CKPTREE_KV_DATABASE_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/chunk_files.h"
#include "kv/commit_chain.h"
#include "kv/commit_log.h"
#include "kv/database.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/mapped_files.h"
#include "kv/options.h"
#include "kv/process_mark.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "kv/watcher.h"

namespace ckptree::kv {

struct Database::Impl {
  Impl(std::string directory_in, const Options& options_in, Mode mode_in);

  // The instance to read from; kFailedPrecondition after Close() and in a
  // forked child.
  absl::StatusOr<std::shared_ptr<Instance>> Reading() const;
  // The same for writing: also refused when reading only, while the check of an
  // open looks, and by a dead handle.
  absl::StatusOr<std::shared_ptr<Instance>> Writing() const;
  void Replace(std::shared_ptr<Instance> instance, bool following);

  // follow.cc: opens for reading, beside a writer or without one.
  absl::Status OpenForReading(OpenReport* found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_mutex);
  // open.cc: the steps after the lock was taken.
  absl::Status OpenForWriting(const Database& database, CheckFn check);
  // open.cc: HEAD into `found`; an unreadable one is head_missing.
  absl::Status ReadHead(OpenReport* found) const;
  // follow.cc: the names of the logs there are, sorted.
  absl::StatusOr<std::vector<std::string>> Logs() const;
  // follow.cc: the live writer, if there is one.
  absl::StatusOr<std::optional<LockHolder>> ProbeWriter() const;
  // open.cc: kNotFound, kFailedPrecondition where it cannot be opened.
  absl::StatusOr<StoreDirectory> LookAtStore() const;
  // commit.cc: writes `batch` with its commit record, synced, without HEAD.
  CommitResult WriteCommit(Instance& instance, CommitRequest request,
                           std::string* record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex);

  // Takes over what the open found as the state of the writer.
  void StartWriting(const ChainTip& newest, std::uint64_t oldest_ordinal,
                    std::unique_ptr<HeadFile> head_file);

  std::string DbDirectory() const { return Join(directory, kDbName); }

  const ProcessMark mark;
  const std::string directory;  // Absolute.
  const Options options;        // As the caller gave them.
  const Mode mode;
  const std::shared_ptr<Watcher> watcher;
  // The caller's options with the guard of the role.
  Options reader_options;
  Options writer_options;
  std::shared_ptr<StoreLock> lock;  // kReadWrite only.
  OpenReport report;

  mutable absl::Mutex instance_mutex;
  std::shared_ptr<Instance> instance ABSL_GUARDED_BY(instance_mutex);
  bool following ABSL_GUARDED_BY(instance_mutex) = false;
  std::atomic<bool> writable = false;

  // The set of live files changed.
  void ForgetFiles() {
    mapped.Forget();
    chunk_files.Forget();
  }

  MappedFiles mapped;
  ChunkFiles chunk_files;

  // Before instance_mutex. Held over I/O: one refresh, one change of the set of
  // files, one commit at a time.
  absl::Mutex refresh_mutex;
  // Of the HEAD that a reader last opened after; 0: there was none.
  std::uint64_t seen_write_count ABSL_GUARDED_BY(refresh_mutex) = 0;
  // All that the commits refer to is in the instance.
  bool seen_all ABSL_GUARDED_BY(refresh_mutex) = false;
  absl::Mutex files_mutex;
  absl::Mutex commit_mutex;
  std::unique_ptr<HeadFile> head ABSL_GUARDED_BY(commit_mutex);
  ChainTip tip ABSL_GUARDED_BY(commit_mutex);
  std::uint64_t oldest_ordinal ABSL_GUARDED_BY(commit_mutex) = 1;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_DATABASE_IMPL_H_
