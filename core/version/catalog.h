// SPDX-License-Identifier: Apache-2.0

// Which steps, tags and pins there are.

#ifndef CKPTREE_CORE_VERSION_CATALOG_H_
#define CKPTREE_CORE_VERSION_CATALOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/selector.h"
#include "ckptree/step.h"
#include "ckptree/store.h"
#include "core/process/arena.h"
#include "core/version/step_rows.h"
#include "kv/database.h"
#include "schema/step_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// The branch that every store has; it has no name.
inline constexpr std::uint32_t kMainBranch = 0;

// Which branch is meant: the number of one that was dropped is given out again,
// and then its time is another.
struct BranchId {
  std::uint32_t number = kMainBranch;
  std::int64_t created_ns = 0;
};

// A copy in memory of the rows that users see: read at open and refresh, kept
// up by the writer after each commit. Thread-safe.
//
// Of a reader the rows of steps are read one by one, as of the moment of
// LoadLater(), until somebody asks for all of them; nobody can tell but by the
// time that it takes.
class Catalog {
 public:
  // Called with rows of steps that do not decode, once they are met.
  using ProblemFn = std::function<void(const std::vector<std::string>& rows)>;

  // Replaces everything by what `database` holds. A row that does not decode is
  // left out and reported; the others are there. Runs in a TBB arena.
  std::vector<std::string> Load(const kv::Database& database)
      ABSL_LOCKS_EXCLUDED(mu_);

  // As Load(), without the rows of steps. `database` and `arena` must be there
  // until Close(); `on_problems` may ask the catalog.
  std::vector<std::string> LoadLater(kv::Database* database, Arena* arena,
                                     ProblemFn on_problems)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Reads what was not read yet.
  void List() const ABSL_LOCKS_EXCLUDED(mu_);
  // Lets go of the database; what was not read yet is not there any more.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  // Reads the rows of `keys` again, and all of them change at once. False, and
  // nothing is changed, where that is not possible: Load() says why.
  bool Update(const kv::Database& database,
              const std::vector<std::string>& keys) ABSL_LOCKS_EXCLUDED(mu_);

  StepRecordPtr Find(std::uint32_t branch, std::int64_t step) const;
  std::vector<StepRecordPtr> Steps(std::uint32_t branch) const;  // Ascending.
  std::vector<std::int64_t> StepNumbers(std::uint32_t branch) const;
  std::vector<StepRecordPtr> AllSteps() const;  // Of all branches, by branch.
  // Those with the highest numbers, ascending.
  std::vector<StepRecordPtr> NewestSteps(std::uint32_t branch,
                                         std::size_t count) const;
  // kNotFound names the branches there are. An empty name is the main branch.
  absl::StatusOr<std::uint32_t> FindBranch(std::string_view name) const;
  absl::StatusOr<BranchId> FindBranchId(std::string_view name) const;
  std::map<std::uint32_t, schema::BranchRecord> Branches() const;
  // That a step has, or a branch names.
  std::uint64_t HighestVersion() const;
  std::vector<TagInfo> Tags() const;
  std::optional<schema::TagRecord> FindTag(std::string_view name) const;
  std::vector<std::string> TagsOf(std::uint64_t version) const;
  bool IsPinned(std::uint64_t version) const;
  // Pinned or tagged.
  std::set<std::uint64_t> NamedVersions() const;
  // Null: none were ever given.
  std::shared_ptr<const schema::BranchSettings> Settings(
      std::uint32_t branch) const;

  // kNotFound says what there is instead.
  absl::StatusOr<StepRecordPtr> Resolve(const StepSelector& selector) const;

  StepInfo Info(const schema::StepRecord& record) const;
  // Of each, as of one moment.
  std::vector<StepInfo> Infos(std::span<const StepRecordPtr> records) const;
  std::string BranchName(std::uint32_t branch) const;
  // "12", or "fork/12".
  std::string NameOf(const schema::StepRecord& record) const;

  // What a policy must not decide by: rows of steps, tags or pins that could
  // not be read. Empty: none.
  std::string damage() const;
  // kDataLoss: what is listed is not all that there is.
  absl::Status CheckListed() const;
  // The same of what was read by now.
  absl::Status CheckSeen() const;

  // Not OK: acknowledged commits are missing, or may be, so that nobody can say
  // which step is the latest.
  void SetDoubt(absl::Status doubt);

  // After a commit that did this: all at once for whoever looks.
  void Apply(const std::vector<StepRecordPtr>& erased, StepRecordPtr put);
  void PutBranch(std::uint32_t branch, schema::BranchRecord record);
  void EraseBranch(std::uint32_t branch);  // With its steps.
  void PutSettings(std::uint32_t branch, schema::BranchSettings settings);
  void PutTag(std::string name, const schema::TagRecord& tag);
  void EraseTag(std::string_view name);
  void PutPin(std::uint64_t version);
  void ErasePin(std::uint64_t version);

 private:
  struct Rows {
    StepsByBranch steps;
    std::map<std::uint32_t, schema::BranchRecord> branches;
    std::map<std::string, schema::TagRecord, std::less<>> tags;
    std::map<std::uint64_t, schema::PinRecord> pins;
    // By branch.
    std::map<std::uint32_t, std::shared_ptr<const schema::BranchSettings>>
        settings;
    std::string damage;
    StepRows::BadRows bad_steps;
    bool names_damaged = false;  // Rows of branches, tags or pins, or unseen.
    absl::Status unseen;         // Why some rows could not be looked at.
  };

  // What `value`, the row of `key`, is; kDataLoss where it does not decode.
  // Rows that are none of the catalog's give nothing.
  using Change = std::function<void(Rows&)>;
  static absl::StatusOr<Change> ChangeOf(std::string_view key,
                                         std::optional<std::string_view> value);

  // What Load() reads, with and without the rows of steps.
  static Rows RowsOf(const kv::Database& database, Arena* arena,
                     std::vector<std::string>* problems);
  static void LoadNames(const kv::Database& database,
                        std::vector<std::string>* problems, Rows* rows);

  // catalog_later.cc: rows of steps that were not read yet.
  struct Later {
    StepRows steps;
    kv::Database* database;
    Arena* arena;
    ProblemFn on_problems;
    int look_ups = 0;
  };
  struct Problems {
    std::vector<std::string> rows;
    ProblemFn tell;
  };
  // Holds the lock, with all rows read; tells of problems behind it.
  class ABSL_SCOPED_LOCKABLE Listed {
   public:
    explicit Listed(const Catalog* catalog)
        ABSL_EXCLUSIVE_LOCK_FUNCTION(catalog->mu_);
    ~Listed() ABSL_UNLOCK_FUNCTION();
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    const Catalog& catalog_;
    Problems problems_;
  };
  Problems ListAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing: only all rows tell.
  std::optional<StepRecordPtr> FindLater(std::uint32_t branch,
                                         std::int64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: likewise.
  StepRecordPtr ResolveLater(const StepSelector& selector) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::StatusOr<std::uint32_t> BranchCalled(std::string_view name) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  const StepsByNumber& StepsOf(std::uint32_t branch) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // With its tags and pin.
  void EraseRow(std::uint32_t branch, std::int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Why none of a branch's steps can be chosen by comparing all of them.
  absl::Status MayCompare(std::optional<std::int64_t> newest = {}) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Why nobody can say which is the newest. The number of a step whose row does
  // not decode is in its key.
  absl::Status MayTakeNewest(std::uint32_t branch) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  // Of a reader the steps come when they are asked for.
  mutable Rows rows_ ABSL_GUARDED_BY(mu_);
  mutable std::optional<Later> later_ ABSL_GUARDED_BY(mu_);
  absl::Status doubt_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_CATALOG_H_
