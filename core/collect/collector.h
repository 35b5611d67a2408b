// SPDX-License-Identifier: Apache-2.0

// Frees what no step needs any more.

#ifndef CKPTREE_CORE_COLLECT_COLLECTOR_H_
#define CKPTREE_CORE_COLLECT_COLLECTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/collect.h"
#include "core/collect/chain_keeper.h"
#include "core/collect/collect_plan.h"
#include "core/process/arena.h"
#include "core/process/logger.h"
#include "kv/database.h"
#include "schema/spaces.h"

namespace ckptree::internal {

struct CollectorContext {
  kv::Database* database = nullptr;
  ChainKeeper* keeper = nullptr;
  const Logger* logger = nullptr;
  Arena* arena = nullptr;
  // Version of the save that runs; 0: none.
  std::function<std::uint64_t()> version_in_flight;
  // The versions that readers in other processes hold, and who; asked once a
  // pass, after it is settled which versions the pass looks at.
  std::function<absl::StatusOr<std::map<std::uint64_t, std::string>>()> leased;
  bool background = true;
  std::uint64_t bytes_per_second = 0;  // Of the background.
  bool code = false;  // Code what is written again; see StoreOptions::coding.
};

// A pass, in this order (core/collect/README.md):
//   1 Choose    removed versions that nobody holds, ascending
//   2 Collect   one atomic commit a version: its blocks are dead, its rows gone
//   3 Drop      the commits synced in two copies, then files without a living
//               byte
//   4 Sweep     trees that no version has any more, one commit; when asked for
//               also what lost commits left in `small`
//   5 Rewrite   the same, then files with many dead bytes, or many small ones
// Passes run one at a time, in the background or in the caller's thread.
//
// Thread-safe.
class Collector {
 public:
  explicit Collector(CollectorContext context);
  ~Collector();  // Stop().

  // Something was removed: the background looks at it soon.
  void Notify();
  // A whole pass, now.
  absl::StatusOr<CollectReport> Collect(const CollectOptions& options);
  // Runs `work` while nothing is collected.
  void RunPaused(absl::FunctionRef<void()> work);
  // Ends the background after what it is doing. Nothing starts any more.
  void Stop();
  // Versions that could not be collected, and why: the next Collect() tries
  // again.
  std::map<std::uint64_t, std::string> failed() const {
    const absl::MutexLock lock(&mu_);
    return failed_;
  }
  // How many wait for a pass to end.
  int waiting() const {
    const absl::MutexLock lock(&mu_);
    return waiting_;
  }

 private:
  struct Pass;

  void Loop();
  bool MayRun() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return stopping_.load() || (work_ && waiting_ == 0);
  }
  // One more, or less, that the background lets go first.
  void CountWaiting(int more) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RunPass(Pass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  absl::Status CollectVersions(Pass* pass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  // Collects `steps`, or the first of them, in one commit: how many.
  absl::StatusOr<std::size_t> CollectSteps(std::span<const ChainStep> steps,
                                           Pass* pass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  absl::Status SweepTrees(bool pages_too)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  absl::Status SweepSmall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  absl::Status DropFiles(Pass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  // In files that live on, as many as they were before they were coded.
  absl::StatusOr<std::uint64_t> DeadBytes() const;
  absl::Status RewriteFiles(Pass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  absl::Status Secure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mu_);
  // Asked to, or somebody waits for a pass of the background to end.
  bool Stopping(const Pass& pass) const;

  CollectorContext context_;

  absl::Mutex pass_mu_;  // Held over a pass.
  // Segments whose last block died; their files are dropped once that is
  // secured.
  std::vector<std::pair<schema::Space, kv::Database::Range>> dead_segments_
      ABSL_GUARDED_BY(pass_mu_);
  bool unsecured_ ABSL_GUARDED_BY(pass_mu_) = false;
  // A tree lost its last version, or a crash may have left one.
  bool trees_died_ ABSL_GUARDED_BY(pass_mu_) = true;
  // Dead bytes in files that live on, since files were last looked at.
  std::uint64_t half_dead_bytes_ ABSL_GUARDED_BY(pass_mu_) = 0;
  std::uint64_t looked_at_version_ ABSL_GUARDED_BY(pass_mu_) = 0;

  mutable absl::Mutex mu_;
  bool work_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  // Of these the background tries none again.
  std::map<std::uint64_t, std::string> failed_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_COLLECTOR_H_
