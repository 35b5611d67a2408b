// SPDX-License-Identifier: Apache-2.0

// A store that is open: what every public object of it shares.

#ifndef CKPTREE_CORE_ENGINE_ENGINE_H_
#define CKPTREE_CORE_ENGINE_ENGINE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/store.h"
#include "core/collect/chain_keeper.h"
#include "core/collect/chain_rows.h"
#include "core/collect/collector.h"
#include "core/engine/catalog_commits.h"
#include "core/engine/policy_turns.h"
#include "core/engine/request_server.h"
#include "core/engine/settings_commits.h"
#include "core/policy/retention.h"
#include "core/process/arena.h"
#include "core/process/logger.h"
#include "core/remote/address_cache.h"
#include "core/remote/far_rows.h"
#include "core/remote/local_note.h"
#include "core/remote/replicator.h"
#include "core/save/coding_choice.h"
#include "core/save/part_memory.h"
#include "core/save/staging_pool.h"
#include "core/save/step_writer.h"
#include "core/version/catalog.h"
#include "core/version/pack_guess.h"
#include "core/version/step_tree.h"
#include "kv/database.h"
#include "kv/lease.h"
#include "kv/process_mark.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// How an engine is opened: what the user says, and what only this library does.
struct EngineOptions {
  // What a handle is for. kAsked: what `store.read_only` says.
  enum class Use { kAsked, kReadLocked, kReadSalvaged };

  StoreOptions store;
  // See kv::Options; null but in tests.
  std::shared_ptr<void> file_system = nullptr;
  // See kv::Options.
  bool shared_folder = false;
  std::shared_ptr<kv::FarSegments> far = nullptr;
  // Open(): of another use than kAsked only where `store.read_only` is set.
  Use use = Use::kAsked;
  // Of a reader: makes no lease in the directory, which may be damaged.
  bool leaves_nothing = false;
  // Create(): saves get versions above it.
  std::uint64_t version_floor = 0;
};

// Thread-safe.
class Engine {
 public:
  // As Store::Create and Store::Open.
  static absl::StatusOr<std::shared_ptr<Engine>> Create(
      const std::string& directory, EngineOptions options);
  static absl::StatusOr<std::shared_ptr<Engine>> Open(
      const std::string& directory, const EngineOptions& options);
  // Of a store in an object store: as it is there now. REQUIRES: read_only.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenByAddress(
      const std::string& address, const EngineOptions& options);
  ~Engine();

  // Ok in the process that opened the store, before Close().
  absl::Status CheckUsable() const;
  // CheckUsable(), and open for writing.
  absl::Status CheckWritable() const;
  bool forked() const;
  // Whether this thread is one that closing the store would wait for.
  bool IsInCallback() const;

  const kv::Database& database() const { return *database_; }
  kv::Database* mutable_database() { return database_.get(); }
  Catalog& catalog() { return catalog_; }
  const Catalog& catalog() const { return catalog_; }
  const Logger& logger() const { return logger_; }
  Arena& arena() const { return *arena_; }
  StagingPool& pool() { return pool_; }
  StepWriter* writer() { return writer_.get(); }       // Null when read only.
  Collector* collector() { return collector_.get(); }  // Likewise.
  ChainKeeper& keeper() { return keeper_; }
  PartMemory& part_memory() { return part_memory_; }
  // As the store was opened.
  const kv::Options& kv_options() const { return kv_options_; }
  // Runs `work` while nothing is collected.
  void RunPaused(absl::FunctionRef<void()> work);
  Retention& retention() { return *retention_; }
  const StoreOptions& options() const { return options_; }
  // Thread-safe.
  CodingChoice& coding() { return coding_; }
  const schema::StoreRecord& store_record() const { return store_; }
  const std::string& directory() const { return directory_; }
  // Damage that was met at open or by the last Refresh().
  std::vector<std::string> warnings() const;
  // What is odd but hurts nothing.
  const std::vector<std::string>& notes() const {
    return database_->report().notes;
  }

  // A tree of this store, kept while somebody uses it.
  absl::StatusOr<std::shared_ptr<const StepTree>> Tree(
      const base::Digest& digest);

  CatalogCommits& commits() { return *commits_; }
  SettingsCommits& settings() { return *settings_; }
  PackGuesses& pack_guesses() { return pack_guesses_; }
  PolicyTurns& policy_turns() { return policy_turns_; }
  // By which OpenByAddress() opened it; empty: it was opened by its directory.
  const std::string& address() const { return address_; }
  // Of a store that is read by its address: see CheckObjects().
  absl::Status CheckObjectsThere(bool all,
                                 std::vector<std::string>* damage) const;
  // Of such a store: see CheckIndexes().
  absl::Status CheckIndexesThere(std::vector<std::string>* found) const;
  // Of segments of the directory that are elsewhere alone.
  std::uint64_t FarBytes();
  // As Store::MayReadRemote().
  bool MayReadRemote() const;
  // What the directory notes of its ships; nothing where it was shipped to no
  // object store, or has the note of another directory. kDataLoss: it cannot
  // be read.
  absl::StatusOr<std::optional<LocalNote>> ReadShipNote() const;
  // The object store that it was last shipped to; empty: none, or not known.
  std::string ShippedTo() const;
  // As the note of the directory says, whatever else is wrong with it.
  static std::string ShippedFrom(const std::string& directory,
                                 const kv::Options& options);
  Replicator* replicator() { return replicator_.get(); }  // Null: no remote.
  // Refresh() of an address, which else waits as long as that may take, ends
  // with kCancelled where it is silent for so long. Before it is shared.
  void SetPatience(absl::Duration patience) { patience_ = patience; }
  absl::Status Refresh();
  absl::Status Close();
  // By a destructor: nothing in a process that was forked off, and nothing is
  // thrown. A failure is logged.
  void CloseAndLog();

  // Of a reader of a directory, and not of the cache of an address.
  bool takes_leases() const { return takes_leases_ && address_.empty(); }
  // Keeps the version from being collected by another process, also by one that
  // comes later, while the result lives. Null where no lease can be made; then
  // a read may find that its step is gone.
  std::shared_ptr<const void> LeaseVersion(std::uint64_t version);
  // Beside a live writer: refreshes; what is listed from then on is not
  // collected by it while the result lives, whatever is removed, and steps open
  // without a look at whether they are still there. Null where there is no such
  // writer, or no lease can be made.
  absl::StatusOr<std::shared_ptr<const void>> HoldListed();
  bool holds_listed() const { return listed_holds_.load() > 0; }
  // That of LeaseVersion(); null before the first.
  std::shared_ptr<const kv::Lease> lease() const {
    const absl::MutexLock lock(&mu_);
    return lease_;
  }
  // Reading only: whether the step of `record` still is that version, after
  // catching up.
  bool StillThere(const schema::StepRecord& record);

  void CountRead(std::uint64_t bytes) { bytes_read_.fetch_add(bytes); }
  Stats stats() const;

 private:
  Engine(std::string directory, StoreOptions options);

  static absl::StatusOr<std::shared_ptr<Engine>> OpenThere(
      const std::string& directory, const EngineOptions& options);
  static absl::StatusOr<std::shared_ptr<Engine>> OpenSalvaged(
      const std::string& directory, const EngineOptions& options);
  kv::Options KvOptions(const EngineOptions& options) const;
  // Without what calls the engine.
  static kv::Options PlainKvOptions(const EngineOptions& options);
  // Create() where nothing was looked for; `remote` may be null.
  static absl::StatusOr<std::shared_ptr<Engine>> CreateThere(
      const std::string& directory, EngineOptions options,
      std::shared_ptr<Replicator> remote);
  // Nothing without a remote.
  static absl::StatusOr<std::shared_ptr<Replicator>> Connect(
      const std::string& directory, const EngineOptions& options, bool fetch);
  // Of Start(): moves a directory that holds nothing aside where another store
  // is at its remote.
  absl::Status BeginShipping(std::uint64_t highest_version);
  void BeginKeeping();  // By local_keep.
  static std::shared_ptr<FarRows> NewFarRows(const StoreOptions& options);
  // Of segments of which the rows say that they are elsewhere.
  absl::Status ForgetFarThatAreHere();
  // Start(); removes what was moved aside by it, and then says so.
  static absl::StatusOr<std::shared_ptr<Engine>> Started(
      std::shared_ptr<Engine> engine, std::unique_ptr<kv::Database> database,
      const kv::Options& kv_options);
  // StoreOptions::cancelled, or that the patience is at its end.
  std::function<bool()> HadEnough() const;
  static bool MadeRoom(const absl::Status& status);
  // From now on each commit of the database that is opened is noted.
  void ShipTo(std::shared_ptr<Replicator> remote, kv::Options* kv_options);
  // Which of the damage that the open found is left, behind what its remote had
  // of it.
  absl::Status LookAgainFor(const std::vector<std::string>& damage);
  // Second copies of leaf records, and tables of segments that damage took.
  absl::Status MendSegments();
  // Logs what the open found.
  void TellOfOpen() const;
  // What of its rows cannot be read; of a reader, as far as it is known.
  std::vector<std::string> LoadCatalog();
  // The same, with the dead lists read beside it.
  std::vector<std::string> LoadCatalog(absl::StatusOr<ChainLinks>* links);
  // kDataLoss: nothing can be collected.
  absl::Status LoadChain(absl::StatusOr<ChainLinks> links);
  // Of steps, which were listed later.
  void NoteBadRows(const std::vector<std::string>& rows);
  // Without listing the steps.
  std::vector<std::string> WarningsSoFar() const;
  // Lists the rows again; logs which of them cannot be read any more.
  void ReloadCatalog();
  absl::Status Start(std::unique_ptr<kv::Database> database,
                     const kv::Options& kv_options);

  const std::string directory_;
  const StoreOptions options_;
  bool lists_later_ = false;  // Steps, when they are asked for.
  bool takes_leases_ = false;
  CodingChoice coding_;
  const pid_t pid_;
  const kv::ProcessMark mark_;
  // Shared with the threads of a database that memory ran out in, which is left
  // as it is.
  const std::shared_ptr<Logger> log_;
  Logger& logger_ = *log_;
  StagingPool pool_;
  PartMemory part_memory_;
  kv::Options kv_options_;
  std::unique_ptr<Arena> arena_;
  // Of the saves: where these sleep or are long, others do not wait for a slot.
  std::unique_ptr<Arena> save_arena_;
  schema::StoreRecord store_;
  Catalog catalog_;
  ChainKeeper keeper_;
  std::string address_;
  CachedStore cached_;                      // The directory of an address.
  std::shared_ptr<RemoteTrouble> trouble_;  // Of an address.
  absl::Duration patience_ = absl::InfiniteDuration();  // Likewise.
  // Of a directory. Outlives the database, as the next one.
  const std::shared_ptr<FarRows> far_rows_;
  std::shared_ptr<Replicator> replicator_;
  std::unique_ptr<kv::Database> database_;  // Outlives writer_ and trees_.
  std::unique_ptr<Retention> retention_;
  std::unique_ptr<CatalogCommits> commits_;
  std::unique_ptr<SettingsCommits> settings_;
  PolicyTurns policy_turns_;
  PackGuesses pack_guesses_;
  std::unique_ptr<StepWriter> writer_;
  std::unique_ptr<Collector> collector_;     // Stops before the writer goes.
  std::unique_ptr<RequestServer> requests_;  // Stops before both.
  std::atomic<bool> closed_{false};
  absl::Mutex close_mu_;  // Held over Close(): the second waits for the first.
  std::atomic<std::uint64_t> bytes_read_{0};

  mutable absl::Mutex mu_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(mu_);  // Of the open.
  // Rows that the last look at the catalog could not read.
  std::vector<std::string> bad_rows_ ABSL_GUARDED_BY(mu_);
  // Held over I/O, before mu_: one after the other, so that none puts back what
  // a later one saw.
  absl::Mutex reload_mu_;
  std::uint64_t loaded_view_ ABSL_GUARDED_BY(mu_) = 0;  // Of the database.
  std::map<base::Digest, std::weak_ptr<const StepTree>> trees_
      ABSL_GUARDED_BY(mu_);
  // The tree used last stays: a query after a query finds its pages decoded.
  std::shared_ptr<const StepTree> last_tree_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<kv::Lease> lease_ ABSL_GUARDED_BY(mu_);
  bool no_lease_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int> listed_holds_ = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_ENGINE_H_
