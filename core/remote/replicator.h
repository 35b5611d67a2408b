// SPDX-License-Identifier: Apache-2.0

// Ships the commits of an open store to an object store, in their order, behind
// it.

#ifndef CKPTREE_CORE_REMOTE_REPLICATOR_H_
#define CKPTREE_CORE_REMOTE_REPLICATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/options.h"
#include "core/process/logger.h"
#include "core/remote/attended_store.h"
#include "core/remote/chain.h"
#include "core/remote/chain_rows.h"
#include "core/remote/cleaner.h"
#include "core/remote/early_uploads.h"
#include "core/remote/far_rows.h"
#include "core/remote/local_keep.h"
#include "core/remote/local_note.h"
#include "core/remote/remote_spares.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "kv/write_batch.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// The steps of an open: Make(), the database with Note() as its on_commit,
// Begin(). core/remote/README.md says what each keeps true.
//
// Thread-safe, but for Make() and Begin().
class Replicator {
 public:
  // Connects to options.remote and looks which store is there; makes
  // `directory` of it where that is absent or empty, and `fetch` is set. Errors
  // as kv::OpenObjectStore().
  static absl::StatusOr<std::shared_ptr<Replicator>> Make(
      const std::string& directory, const StoreOptions& options,
      const kv::Options& kv_options, bool fetch);
  ~Replicator();

  // Of the store that is there; empty: none.
  const std::string& remote_uuid() const { return uuid_; }

  // What reads of that directory may look for there, from Begin() on.
  std::shared_ptr<kv::SpareSegments> spares() const { return spares_; }

  // A commit was made. Quick.
  void Note(std::uint64_t ordinal, std::uint64_t version,
            const kv::WriteBatch& batch);

  // A segment is whole, and in the file `path` until its save is committed. It
  // is uploaded now where saves wait for that. Quick; from any thread.
  void Built(const std::string& row_key, const std::string& path);

  // Takes the store over there and starts to ship. `database` and `logger`
  // outlive Stop(). `is_whole`: the directory has all of its segments, so none
  // is looked for there. kFailedPrecondition: another store is there, somebody
  // else may still write to it, or the directory must not go on (see
  // ChainRows).
  absl::Status Begin(kv::Database* database, const std::string& uuid,
                     std::uint64_t highest_version, bool is_whole,
                     const Logger* logger);

  // After Begin(): from now on the disk keeps what the versions of `kept` need;
  // the rest leaves it once it is there. See LocalKeep, also for `alone`.
  // Without it what left the disk stays away.
  void KeepOnly(FarRows* far_rows, KeptVersionsFn kept,
                std::function<void(absl::FunctionRef<void()> work)> alone);

  // After Begin() refused a directory that has no step, no settings and no file
  // of others, and of which nothing was shipped: an empty one, which gets what
  // is there, may take its place.
  bool holds_nothing() const { return holds_nothing_; }

  // Until all that was committed so far, or in the save of that version, is
  // there. kDeadlineExceeded: it goes on. kFailedPrecondition: fenced.
  absl::Status WaitForAll(absl::Duration timeout);
  absl::Status WaitForVersion(std::uint64_t version, absl::Duration timeout);
  // As WaitForAll(), and until it was looked whether the segments of steps are
  // still there, which an open does behind its first ship, and those that were
  // not are there again.
  absl::Status WaitForWhole(absl::Duration timeout);

  // After Begin(): the uuid of the store, and the era of what this one ships.
  const std::string& uuid() const { return uuid_; }
  std::uint64_t era() const { return era_; }
  // A rank has uploaded that segment under its name of this era, before a
  // commit has its row of that key: it is not uploaded again.
  void NoteUploaded(const std::string& row_key, schema::RemoteSegment segment);

  // OK, or why nothing is shipped any more.
  absl::Status health() const;
  // Commits that are not there yet.
  std::uint64_t backlog() const;
  const std::string& address() const { return store_->address(); }

  // Waits for the backlog, as WaitForWhole(), but for a minute of a look; tells
  // the object store that the writer is done, and ends the thread.
  // kDeadlineExceeded: some commits are not there; the next open ships them.
  absl::Status Stop(absl::Duration timeout);

 private:
  // Of one request that is not for a segment.
  static constexpr absl::Duration kRequestTime = absl::Minutes(1);
  // Of an open; without an index all commits are read.
  static constexpr absl::Duration kOpenTime = absl::Minutes(30);

  Replicator(std::unique_ptr<kv::ObjectStore> store, std::string directory,
             const StoreOptions& options, kv::Options kv_options,
             std::shared_ptr<RemoteTrouble> trouble,
             std::unique_ptr<RemoteAttendant> attendant);

  // What one commit ships.
  struct Round {
    std::uint64_t to = 0;
    std::uint64_t ceiling = 0;
    std::set<RowName> names;
    std::vector<schema::RemoteRow> rows;
    std::vector<schema::SegmentKeyFields> segments;
    // What was asked for, but for the rows.
    schema::RemoteCommit commit;
    bool is_there = false;  // It is in the chain.
  };

  // Reads the chain to its end; false: nothing was shipped there. An error
  // where somebody may be training with it.
  absl::StatusOr<bool> MayFetch(const kv::Call& call);
  // Of a directory without a store: takes over, and makes it there.
  absl::Status FetchAll(const std::string& directory);
  // The directory is locked. `took_over`: the next open here is to know it.
  absl::Status FetchLocked(const std::string& directory, bool* took_over);
  absl::Status FetchInto(const std::string& directory);
  absl::StatusOr<std::optional<schema::RemoteStore>> FindStore(
      const kv::Call& call);
  absl::Status Refused(const std::string& why);
  absl::Status TakeOver(std::uint64_t ordinal, const kv::Call& call);
  // What the directory lost and the object store has, once it is taken over.
  absl::Status FetchBack(const std::stop_token& cancelled);
  absl::StatusOr<std::optional<std::uint64_t>> PlaceOfMoved(
      const ChainRows& rows, std::uint64_t ordinal, const kv::Call& call);
  // Before a ship is asked for: should nobody hear of it, the next open knows
  // it.
  absl::Status Announce(schema::RemoteCommit* ship);
  absl::Status CheckUnused(const kv::Call& call);
  // Asks for the open that `draft` makes, at the end of the chain, until it is
  // in it.
  absl::Status AskOpen(
      absl::FunctionRef<absl::StatusOr<schema::RemoteCommit>()> draft,
      const kv::Call& call);
  std::string ClaimName() const;
  absl::Status YieldToClaim(const std::stop_token& stop);
  // kDataLoss: the commit that was the newest at the last look is gone.
  absl::Status CheckIsStillThere(const kv::Call& call);
  absl::Status CheckAddress();
  absl::Status CheckFarAreThere(bool is_there);
  absl::Status CheckShipsAreThere();
  schema::RemoteCommit Draft(schema::RemoteCommit::Shape shape) const;

  void Loop(const std::stop_token& stop);
  // What throws is told, and done later.
  void Guarded(const char* what, absl::FunctionRef<void()> work) const;
  // Logs how a ship ended, where that is not what was `told`. `ended`: there
  // are no more.
  void Tell(const absl::Status& shipped, bool ended, std::string* told);
  absl::Status ShipOnce(const std::stop_token& stop);
  // Asks for a commit of what changed. The chain says whether it is pending.
  absl::Status AskFor(const std::stop_token& stop);
  void TakeBack();
  // All that a commit which is in the chain changes here. It may be done again
  // where it threw.
  absl::Status NoteShipped(const schema::RemoteCommit& commit,
                           const std::vector<schema::RemoteRow>& rows);
  // A commit that was read at the end of the chain: one of this writer is noted
  // as shipped.
  absl::Status TakeOwn(const schema::RemoteCommit& commit,
                       const kv::Call& call);
  absl::Status ReadOn(const kv::Call& call);
  absl::StatusOr<Round> Collect();
  bool IsLostHereToo(const absl::Status& why, const std::string& key) const;
  absl::Status Upload(const Round& round, const std::stop_token& stop,
                      schema::RemoteCommit* commit);
  std::optional<schema::RemoteSegment> UploadedBefore(
      const std::string& row_key) const;
  void Shipped(std::uint64_t to);
  absl::Status WaitFor(std::uint64_t wanted, absl::Duration timeout);
  absl::Status NotThere() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Where there are commits enough that the newest index lacks, or any.
  absl::Status WriteIndex(bool any, const std::stop_token& stop);
  void Clean(const std::stop_token& stop);
  void LetGo(const std::stop_token& stop);
  absl::Status LookAtEnd(const kv::Call& call);
  void NoteLost(const std::vector<std::string>& lost);
  void LookEnded();
  absl::Status WaitForLook(absl::Time until);
  absl::Duration UntilIdleWork() const;

  const std::shared_ptr<RemoteTrouble> remote_trouble_;
  std::unique_ptr<RemoteAttendant> attendant_;  // Until Begin() is over.
  const std::unique_ptr<kv::ObjectStore> store_;
  const std::string directory_;
  const std::shared_ptr<RemoteSpares> spares_;
  const kv::Options kv_options_;
  const LogSink log_;
  const std::function<bool()> cancelled_;
  const bool take_over_;
  const bool waited_for_;  // Saves are done when they are there.
  const absl::Duration grace_;
  std::string uuid_;
  bool proven_ = false;  // It creates conditionally.
  // A store was named when this one was made, and nobody has looked whether
  // others are there.
  bool was_named_ = false;
  // The object that names it is gone, and others of it are there.
  bool lost_name_ = false;
  bool ships_again_ = false;  // All, of which nothing is there any more.
  std::uint64_t highest_version_ = 0;
  bool holds_nothing_ = false;
  std::uint64_t era_ = 0;
  LocalNote note_;
  std::string shipped_elsewhere_;  // The address before, where it is another.
  std::vector<std::string> fetched_without_;  // What was damaged there.
  kv::Database* database_ = nullptr;
  const Logger* logger_ = nullptr;

  // Of the thread, after Begin().
  std::unique_ptr<RemoteChain> chain_;
  std::optional<Round> asked_;       // The commit of which nobody knows yet.
  std::string claim_;                // The one that it paused for.
  std::set<std::string> lost_;       // Of segments: keys of their rows.
  std::uint64_t indexes_ = 0;        // That it wrote, or tried to.
  std::uint64_t looked_at_ = 0;      // The newest commit of the last look.
  bool gone_ = false;                // As the last look found.
  std::unique_ptr<RowIndex> index_;  // Of what is there.
  std::unique_ptr<RemoteCleaner> cleaner_;
  std::unique_ptr<LocalKeep> local_keep_;  // Null: nothing leaves the disk.
  bool keep_due_ = false;                  // Something was shipped since.
  bool last_round_ = false;

  std::unique_ptr<EarlyUploads> early_;  // From Begin() on; may be null.

  mutable absl::Mutex mu_;
  std::set<RowName> changed_ ABSL_GUARDED_BY(mu_);  // Since the last round.
  std::map<std::uint64_t, std::uint64_t> ordinal_of_ ABSL_GUARDED_BY(mu_);
  // By ranks and rounds before, and in no commit that is known to be in the
  // chain.
  std::map<std::string, schema::RemoteSegment> uploaded_ ABSL_GUARDED_BY(mu_);
  std::uint64_t noted_ ABSL_GUARDED_BY(mu_) = 0;  // Ordinals.
  std::uint64_t shipped_ ABSL_GUARDED_BY(mu_) = 0;
  // Behind that ship it is looked, or will be at once, what is lost there; the
  // ordinal of the newest commit that was made to ship that again.
  bool looking_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t again_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t ceiling_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;                     // The thread.
  std::unique_ptr<LocalKeep> keep_given_ ABSL_GUARDED_BY(mu_);  // To it.
  bool keeps_some_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status health_ ABSL_GUARDED_BY(mu_);
  // Of the last try.
  absl::Status trouble_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_REPLICATOR_H_
