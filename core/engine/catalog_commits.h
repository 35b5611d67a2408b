// SPDX-License-Identifier: Apache-2.0

// The commits that a store makes beside saves: which steps there are, and what
// they are called.

#ifndef CKPTREE_CORE_ENGINE_CATALOG_COMMITS_H_
#define CKPTREE_CORE_ENGINE_CATALOG_COMMITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/options.h"
#include "ckptree/selector.h"
#include "core/collect/chain_keeper.h"
#include "core/version/catalog.h"
#include "kv/database.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// What they work with; all of it outlives them.
struct CommitContext {
  // OK where the store is open for writing. Asked first by each commit.
  std::function<absl::Status()> check_writable;
  kv::Database* database = nullptr;
  Catalog* catalog = nullptr;
  ChainKeeper* keeper = nullptr;
  std::function<void()> on_removed;  // Called after steps were removed.
};

// One commit at a time, saves among them, so that what it found in the catalog
// still holds when it is made. Thread-safe. See store.h for what each does.
class CatalogCommits {
 public:
  explicit CatalogCommits(CommitContext context);

  absl::Status Delete(const std::vector<StepSelector>& steps,
                      const DeleteOptions& options);
  absl::Status Tag(std::string_view name, const StepSelector& step, bool move);
  absl::Status Untag(std::string_view name);
  absl::Status Pin(const StepSelector& step, bool pinned);
  absl::Status Fork(const StepSelector& step, std::string_view name);
  // `created_ns`: only where it is that one, and not another of the same name;
  // 0: whichever.
  absl::Status DropBranch(std::string_view name, const DeleteOptions& options,
                          std::int64_t created_ns = 0);
  // A branch as it was in another store: it goes on from version `tip` of this
  // one, or from nothing (0), whatever it came from once. `orphan`: it came
  // from a branch that is not in this store, and gets a number for that which
  // no branch has. kAlreadyExists.
  absl::Status AdoptBranch(schema::BranchRecord branch, bool orphan);
  // The same in the place of the branch of that name, which keeps its steps;
  // with steps also its tip. kNotFound.
  absl::Status ReplaceBranch(schema::BranchRecord branch, bool orphan);

  // Held while a commit, or that of a save, is put together and made.
  absl::Mutex* mu() ABSL_LOCK_RETURNED(mu_) { return &mu_; }
  const kv::Database& database() const { return database_; }
  // For the other commits under that lock.
  absl::Status CheckWritable() const { return context_.check_writable(); }
  absl::Status Commit(kv::CommitRequest request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By version; in one commit.
  absl::Status Remove(const std::map<std::uint64_t, StepRecordPtr>& records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

 private:
  // A number that no branch has, and none that is somebody's origin.
  std::uint32_t NextBranch() const;
  absl::Status AddBranch(schema::BranchRecord branch, kv::CommitRequest request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<kv::CommitRequest> DropRequest(
      std::uint32_t branch, const std::vector<StepRecordPtr>& steps,
      const DeleteOptions& options) const;
  // kFailedPrecondition: it has a tag that does not go with it.
  absl::Status CheckTags(const schema::StepRecord& record,
                         const DeleteOptions& options) const;

  const CommitContext context_;
  kv::Database& database_;
  Catalog& catalog_;
  ChainKeeper& keeper_;
  absl::Mutex mu_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_CATALOG_COMMITS_H_
