// SPDX-License-Identifier: Apache-2.0

// A store that is followed while it grows.

#ifndef CKPTREE_TOOLS_REPORT_LIVE_RUN_H_
#define CKPTREE_TOOLS_REPORT_LIVE_RUN_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/store.h"
#include "tools/report/report_data.h"

namespace ckptree::tools {

// Thread-safe.
class LiveRun {
 public:
  // `store` is open for reading and must outlive it. Of `options` all holds but
  // `steps`: those of `branch` that there are.
  LiveRun(Store* store, std::string branch, ReportOptions options)
      : store_(*store),
        branch_(std::move(branch)),
        options_(std::move(options)) {}

  // Names what Data() would return: another text where that is another.
  absl::StatusOr<std::string> Version() ABSL_LOCKS_EXCLUDED(mutex_);
  // As GatherReport(). While steps come faster than it can be gathered it stays
  // behind: gathering takes a tenth of the time at most. kNotFound: no steps.
  // `version`, where it is not null, gets their name.
  absl::StatusOr<std::string> Data(std::string* version = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The newest step of every branch, and the store, as Prometheus reads it.
  absl::StatusOr<std::string> Metrics() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What is there now, and what it is called.
  absl::StatusOr<std::vector<StepInfo>> Look(std::string* version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const std::string branch_;
  const ReportOptions options_;
  absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_);  // Of data_.
  std::string data_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string usage_version_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t disk_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_LIVE_RUN_H_
