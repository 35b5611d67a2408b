// SPDX-License-Identifier: Apache-2.0

// The commits that change the settings of a branch: its policy, and the
// metadata of the run.

#ifndef CKPTREE_CORE_ENGINE_SETTINGS_COMMITS_H_
#define CKPTREE_CORE_ENGINE_SETTINGS_COMMITS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/preservation.h"
#include "core/engine/catalog_commits.h"
#include "core/policy/retention.h"
#include "core/version/catalog.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// Thread-safe. See store.h for what each does.
class SettingsCommits {
 public:
  // Calls what it is given while nothing is collected.
  using RunPausedFn = std::function<void(absl::FunctionRef<void()> work)>;

  // All outlive this.
  SettingsCommits(CatalogCommits* commits, Catalog* catalog,
                  Retention* retention, RunPausedFn run_paused);

  absl::Status SetPolicy(const Preservation& policy, std::string_view branch,
                         bool from_program);
  absl::StatusOr<std::vector<std::int64_t>> ApplyPolicy(
      std::string_view branch);
  absl::Status SetMetadata(std::string json, std::string_view branch);
  // As they were in another store. Nothing where there are some already.
  absl::Status Adopt(std::string_view branch, schema::BranchSettings settings);

 private:
  absl::Status Put(std::uint32_t branch, schema::BranchSettings settings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commits_.mu());
  // Those of `branch` that its policy does not keep, as many as one commit
  // takes, which are added to `removed`. True where there may be more.
  absl::StatusOr<bool> RemoveSome(std::string_view branch,
                                  std::vector<std::int64_t>* removed);

  CatalogCommits& commits_;
  Catalog& catalog_;
  Retention& retention_;
  const RunPausedFn run_paused_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_SETTINGS_COMMITS_H_
