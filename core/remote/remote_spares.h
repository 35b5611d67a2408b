// SPDX-License-Identifier: Apache-2.0

// Segments of chunks of a directory that ships, as they are in its object
// store: what is damaged here is read there.

#ifndef CKPTREE_CORE_REMOTE_REMOTE_SPARES_H_
#define CKPTREE_CORE_REMOTE_REMOTE_SPARES_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/process/logger.h"
#include "core/remote/mirror.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "kv/spare_segments.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Knows none before Begin(). Thread-safe.
class RemoteSpares : public kv::SpareSegments {
 public:
  RemoteSpares(kv::ObjectStore* store, std::string directory)
      : store_(store), directory_(std::move(directory)) {}

  // `all` are those that commits of the chain list, of the store `uuid`. What
  // is fetched stands in staging of `database`. Both outlive the reads.
  void Begin(kv::Database* database, const std::string& uuid,
             const Logger* logger, const LivingSegments& all);
  // A commit with these rows is known to be in the chain; `all` as of it.
  void Follow(const LivingSegments& all,
              const std::vector<schema::RemoteRow>& rows);

  absl::StatusOr<Copy> Fetch(std::string_view key) override;

 private:
  void Know(const schema::RemoteLiving& living)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says it, once for each segment, and keeps an error.
  void Note(const schema::RemoteLiving& living, const absl::Status& fetched)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Failure {
    absl::Status why;
    absl::Time until;  // Monotonic; no other try before.
  };

  kv::ObjectStore* const store_;
  const std::string directory_;

  absl::Mutex mutex_;
  kv::Database* database_ ABSL_GUARDED_BY(mutex_) = nullptr;
  const Logger* logger_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string uuid_ ABSL_GUARDED_BY(mutex_);
  // By their first keys, without places of blocks.
  std::map<std::string, schema::RemoteLiving, std::less<>> known_
      ABSL_GUARDED_BY(mutex_);
  std::set<std::string> told_ ABSL_GUARDED_BY(mutex_);  // By attempt.
  std::map<std::string, Failure> failed_ ABSL_GUARDED_BY(mutex_);  // Likewise.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_REMOTE_SPARES_H_
