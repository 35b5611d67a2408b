// SPDX-License-Identifier: Apache-2.0

// The save protocol: takes saves in the order of their Begin(), one after the
// other, and makes each a step by one atomic commit.

#ifndef CKPTREE_CORE_SAVE_STEP_WRITER_H_
#define CKPTREE_CORE_SAVE_STEP_WRITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/options.h"
#include "core/collect/chain_keeper.h"
#include "core/policy/retention.h"
#include "core/process/arena.h"
#include "core/process/logger.h"
#include "core/save/failed_saves.h"
#include "core/save/part_writer.h"
#include "core/save/save.h"
#include "core/save/save_sink.h"
#include "core/save/split_leaves.h"
#include "core/save/stager.h"
#include "core/save/staging_pool.h"
#include "core/version/catalog.h"
#include "core/version/compact_part.h"
#include "kv/database.h"

namespace ckptree::internal {

// What the writer works with; all of it outlives the writer.
struct WriterContext {
  kv::Database* database = nullptr;
  kv::Options kv_options;  // For the segments.
  Catalog* catalog = nullptr;
  const Logger* logger = nullptr;
  Arena* arena = nullptr;
  std::string uuid;
  bool statistics = true;
  CodingChoice* coding = nullptr;
  std::function<void(const Progress&)> on_progress;
  std::uint64_t highest_version = 0;  // Ever used; the next save's is above.
  ChainKeeper* keeper = nullptr;
  const Retention* retention = nullptr;
  // Held while a commit is put together and made: what it found in the catalog
  // still holds.
  absl::Mutex* commit_mu = nullptr;
  // Called after a commit that took a step's row from it.
  std::function<void()> on_removed;
  // Called when a save is committed, before its handle hears of it; an error is
  // that of the save. Null: nothing.
  std::function<absl::Status(std::uint64_t version)> on_committed;
  // See PartTask.
  std::function<void(const BuiltSegment&)> on_built;
  // See StoreOptions.
  StagingPool* pool = nullptr;
  absl::Duration staging_idle = absl::Seconds(10);
  int most_in_flight = 2;
};

// The steps of a save, marked in step_writer.cc; core/save/README.md says what
// each keeps true:
//   1 Submit   a place in the queue, no version yet
//   2 Stage    copy what is not lent; overlaps with other saves
//   3 Compare  with the tip of the branch
//   4 Write    what is new, into segments outside the database or the batch
//   5 Adopt    all segments at once; nothing refers to them yet
//   6 Commit   one record of the journal, synced; then the index
// Steps 3 to 6 run on one thread, in the order of the queue.
//
// Thread-safe.
class StepWriter : public SaveSink {
 public:
  explicit StepWriter(WriterContext context);
  // Cancels nothing: Refuse(), Stop().
  ~StepWriter() override;

  // Step 1.
  [[nodiscard]] bool Submit(const std::shared_ptr<Save>& save) override;
  // Until Submit() of one more would not wait.
  absl::Status WaitForRoom(absl::Duration timeout);
  void Fail(const std::shared_ptr<Save>& save,
            const absl::Status& why) override;

  // From now on nothing is submitted.
  void Refuse();
  // Waits for the saves there are and ends the threads. REQUIRES: Refuse().
  void Stop();

  std::uint64_t submitted() const;
  // Until the first `saves` that were submitted have ended.
  absl::Status WaitFor(std::uint64_t saves, absl::Duration timeout);

  // Saves that are not over, in the order of their commits. What is missing
  // here and did not fail is in the catalog.
  std::vector<std::shared_ptr<const Save>> InFlight() const;

  // Those that nobody saw.
  FailedSaves& failed() { return failed_; }

  // A version that no save has or gets.
  std::uint64_t TakeVersion() { return ++last_version_; }

  Stats stats() const;
  // Of the save whose segments may be in the database without a row; 0: none.
  std::uint64_t version_in_flight() const { return in_flight_.load(); }
  const kv::Options& kv_options() const { return context_.kv_options; }

  // For tests. REQUIRES: no save is in flight.
  void LimitSegments(const SegmentLimits& limits) { segments_ = limits; }

 private:
  // What a save found out that its commit needs.
  struct Attempt {
    std::uint64_t version = 0;
    std::string name;  // Of the staging folder.
    absl::Mutex mu;
    bool staged = false;  // The folder was made; guarded by mu while writing.
    std::vector<PartResult> parts;
    LeafTotals split;  // Of the leaves that several parts have something of.
    std::optional<std::uint64_t> replaced;  // Version whose step it takes.
    Retention::Verdict verdict;             // Of the branch's policy.
    absl::Status policy_problem;            // Why there is none.
    bool committing = false;  // Its rows may be there from now on.
  };

  void WriteLoop();

  absl::Status Run(Save* save, std::uint64_t* version);
  // kNotFound, naming it: the branch of the save was dropped, though another
  // may have its number by now.
  absl::StatusOr<schema::BranchRecord> BranchOf(
      const Save& save, std::string* bytes = nullptr) const;
  // With `whole` every part of it is read.
  absl::Status LoadTip(const Save& save, bool whole);
  absl::Status Write(Save* save, Attempt* attempt);
  absl::Status GatherParts(Save* save, Attempt* attempt);
  // Whether these parts are a step: every element there, and once.
  absl::Status CheckParts(const Attempt& attempt) const;
  absl::Status CheckReplicated(const std::vector<PartResult>& parts) const;
  // The entries of a part, and the leaves of which it has less than the whole.
  absl::Status LookInto(const PartResult& part,
                        std::vector<schema::TreeEntry>* entries,
                        std::vector<schema::BoxedLeaf>* boxed) const;
  // Sets attempt->split. kInvalidArgument where there are too many leaves.
  absl::Status CountLeaves(Attempt* attempt);
  absl::Status Adopt(Attempt* attempt);
  absl::Status Commit(Save* save, Attempt* attempt);
  // Sets attempt->replaced and attempt->verdict.
  absl::StatusOr<kv::CommitRequest> BuildCommit(
      const Save& save, Attempt* attempt,
      const std::shared_ptr<schema::StepRecord>& record);
  // What the branch's policy removes with this commit, into the attempt. An
  // error where it does not keep the step itself.
  absl::Status AskPolicy(const Save& save, const StepRecordPtr& record,
                         const schema::DeadList& dead, Attempt* attempt) const;
  void RemoveByPolicy(Attempt* attempt, kv::CommitRequest* request) const;
  // What SaveOptions::delete_later deletes, beside what the policy does.
  absl::Status RemoveLater(const Save& save, Attempt* attempt,
                           kv::CommitRequest* request) const;
  // Once the step is committed.
  void TellPolicy(Save* save, const schema::StepRecord& record,
                  const Attempt& attempt);
  bool IsTreeOfBase(const PartResult& part) const;
  absl::Status AddTree(const PartResult& part, kv::CommitRequest* request);
  absl::Status AddLostParts(const Attempt& attempt,
                            schema::DeadList* dead) const;
  absl::StatusOr<std::shared_ptr<const CompactPart>> TipPart(
      const schema::PartRecord& part) const;
  void CleanUp(const Attempt& attempt, bool committed);
  void ReportProgress(const Save& save, bool force);

  // Somebody waits for all saves there are.
  void Hurry() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CanWrite() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return stopping_ || !queue_.empty();
  }
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return refusing_ || stats_.saves_in_flight <
                            static_cast<std::uint64_t>(context_.most_in_flight);
  }

  WriterContext context_;
  const std::vector<std::pair<std::string, std::string>> lineage_;

  // Of the write thread alone.
  bool tip_loaded_ = false;
  std::uint32_t tip_branch_ = 0;
  BaseState tip_;
  // Of the last step of several parts, by their digest, where it had to know.
  std::map<base::Digest, std::shared_ptr<const SplitNames>> split_names_;
  // The tip before, and what the save left: freed once it is acknowledged.
  std::vector<std::shared_ptr<const void>> retired_;
  std::atomic<std::uint64_t> last_version_ = 0;
  std::atomic<std::uint64_t> in_flight_{0};
  absl::Time last_report_;
  SegmentLimits segments_;

  mutable absl::Mutex mu_;
  bool refusing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Submitted, in the order of their commits; the first is being saved.
  std::deque<std::shared_ptr<Save>> queue_ ABSL_GUARDED_BY(mu_);
  std::uint64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  Stats stats_ ABSL_GUARDED_BY(mu_);

  FailedSaves failed_;
  Stager stager_;
  std::thread writer_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_STEP_WRITER_H_
