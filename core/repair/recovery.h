// SPDX-License-Identifier: Apache-2.0

// What `recover` does, for `repair` too.

#ifndef CKPTREE_CORE_REPAIR_RECOVERY_H_
#define CKPTREE_CORE_REPAIR_RECOVERY_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/options.h"
#include "ckptree/recover.h"
#include "kv/store_lock.h"

namespace ckptree::internal {

// A folder that goes with its owner, with all that is in it.
class WorkFolder {
 public:
  // One that a killed process left is emptied and taken. kAlreadyExists: a
  // living process has it, or it is not ours.
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Make(std::string path);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  std::string operator/(std::string_view name) const;

 private:
  WorkFolder(std::string path, std::unique_ptr<kv::StoreLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  std::unique_ptr<kv::StoreLock> lock_;
};

struct RecoveryPlan {
  RecoverOptions options;
  bool locked = false;  // The caller holds the lock of the damaged store.
  bool save = true;     // False: all is read, and the new store stays empty.
  // The versions of the new store are above all that were ever used in the
  // damaged one.
  bool above_versions = false;
};

// What a recovery and a repair make in the folder they work in: the new store,
// and others whose names begin as that of the scratch.
inline constexpr std::string_view kMadeName = "store";
inline constexpr std::string_view kScratchName = "scratch";
inline bool IsOfWork(std::string_view name) {
  return name == kMadeName || name.starts_with(kScratchName);
}

// Recovers the store `from` into a new one in the folder `to`, which must not
// exist. A folder `scratch` and others that begin with its name may come, and
// are left: all of it belongs into a WorkFolder. report.made is not set.
absl::StatusOr<RecoverReport> RecoverInto(const std::string& from,
                                          const std::string& to,
                                          const std::string& scratch,
                                          const RecoveryPlan& plan);

// What an open has to say stands in a report: nothing is logged.
StoreOptions QuietOptions();

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REPAIR_RECOVERY_H_
