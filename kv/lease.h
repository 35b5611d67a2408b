// SPDX-License-Identifier: Apache-2.0

// What readers in other processes need: files in <store>/leases.

#ifndef CKPTREE_KV_LEASE_H_
#define CKPTREE_KV_LEASE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/process_mark.h"

namespace ckptree::kv {

inline constexpr std::uint64_t kEveryVersion = 0;

// One file that names the versions a process has open, held by an open file
// description lock: it dies with the process (and with children it forked). A
// courtesy to the reader, not a part of the store: it is neither synced nor
// fault-injected, and where it cannot be made (a read-only mount, another
// user's store) the reader goes without.
//
// Thread-safe. A forked child neither changes nor removes it.
class Lease {
 public:
  // kPermissionDenied, kFailedPrecondition, ... where none can be made.
  static absl::StatusOr<std::unique_ptr<Lease>> Make(
      const std::string& directory, int permissions = 0666);
  // The file goes.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Counted: as many Drop() as Hold(). kEveryVersion holds everything. When
  // Hold() returns OK, every collector that lists leases from then on sees it;
  // after an error nothing is held.
  absl::Status Hold(std::uint64_t version);
  void Drop(std::uint64_t version);

  const std::string& path() const { return path_; }

 private:
  Lease(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProcessMark mark_;
  const std::string path_;
  const int fd_;
  absl::Mutex mutex_;
  std::map<std::uint64_t, int> held_ ABSL_GUARDED_BY(mutex_);
};

// The versions that living leases name, and who has them: "pid 12 on host".
// kEveryVersion where one cannot be read. Removes the files of the dead. That
// `lists`, which may be null, holds everything is left out: who looks at what
// would go keeps it for that long alone.
absl::StatusOr<std::map<std::uint64_t, std::string>> LeasedVersions(
    const std::string& directory, const Lease* lists = nullptr);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_LEASE_H_
