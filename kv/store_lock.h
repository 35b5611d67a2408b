// SPDX-License-Identifier: Apache-2.0

// The writer's lock: one process, one handle, whatever path led to the store.

#ifndef CKPTREE_KV_STORE_LOCK_H_
#define CKPTREE_KV_STORE_LOCK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::kv {

// Who holds a store.
struct LockHolder {
  std::int64_t pid = 0;
  std::string host;
  bool brief = false;  // It makes one change and goes.
};

// A registry by (device, inode) of the directory inside this process, and an
// open-file-description lock on `LOCK` between processes; the file names its
// holder. Released by the destructor, by process death, never by a child.
//
// Thread-safe.
class StoreLock {
 public:
  // kUnavailable, naming pid and host, where another handle or process has it
  // after `wait_ms`. kFailedPrecondition where the directory is another user's
  // (see CheckOwner), or LOCK is a link or has other names: it is written to.
  //
  // A holder that said it is `brief` is waited for kBriefWaitMs, also where
  // `wait_ms` is less: a trainer does not fail because of a command that sets a
  // tag. Not by one who is brief itself.
  static absl::StatusOr<std::unique_ptr<StoreLock>> Acquire(
      const std::string& directory, std::int64_t wait_ms,
      int permissions = 0666, bool brief = false);
  static constexpr std::int64_t kBriefWaitMs = 10'000;

  // The holder in another process or this one, or nothing. Takes no lock.
  static absl::StatusOr<std::optional<LockHolder>> Probe(
      const std::string& directory);

  ~StoreLock();
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

  // OK while the lock file and the directory at this path are still the ones
  // that were locked, and this process is the one that locked them;
  // kFailedPrecondition ("store was moved", "LOCK was replaced", "opened by
  // pid N") otherwise.
  absl::Status Check() const;

  std::uint64_t device() const;
  std::uint64_t inode() const;

 private:
  struct Impl;
  explicit StoreLock(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_STORE_LOCK_H_
