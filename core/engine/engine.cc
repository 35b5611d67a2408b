// SPDX-License-Identifier: Apache-2.0

#include "core/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/engine/option_check.h"
#include "core/engine/request_execution.h"
#include "core/policy/policy_thread.h"
#include "core/process/arena.h"
#include "core/process/close_at_exit.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/process/processors.h"
#include "core/remote/remote_address.h"
#include "core/verify/unnamed_versions.h"
#include "core/version/open_check.h"
#include "core/version/store_features.h"
#include "kv/process_use.h"
#include "schema/keys.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// How often an open goes back and forth between "is there" and "is not", beside
// others that create the store, and how often a reader looks at damage again.
constexpr int kAttempts = 16;

// Of the arena: more than there are processors would only take turns on them.
int Slots(int threads) {
  const int processors = Processors();
  return threads == 0 ? processors : std::min(threads, processors);
}

std::string NewUuid() {
  std::random_device device;
  std::string uuid(16, '\0');
  for (char& byte : uuid) byte = static_cast<char>(device() & 0xff);
  return uuid;
}

}  // namespace

Engine::Engine(std::string directory, StoreOptions options)
    : directory_(std::move(directory)),
      options_(std::move(options)),
      coding_(CodingOf(options_)),
      pid_(getpid()),
      log_(std::make_shared<Logger>(options_.log)),
      pool_(options_.staging_bytes != 0 ? options_.staging_bytes
                                        : DefaultStagingBytes(),
            options_.host_allocator),
      arena_(std::make_unique<Arena>(Slots(options_.threads))),
      save_arena_(std::make_unique<Arena>(arena_->max_concurrency())),
      far_rows_(NewFarRows(options_)) {
  kv::NoteUse();
}

Engine::~Engine() {
  CloseAndLog();
  // Not before: a program that ends in another thread waits until it is closed.
  NeedNotCloseAtExit(this);
}

bool Engine::IsInCallback() const {
  return EngineThread::IsOf(database_.get()) ||
         PolicyThread::IsOf(database_.get());
}

void Engine::CloseAndLog() {
  if (forked()) return;
  GuardedStatus("Close", [this] {
    const absl::Status status = Close();
    if (!status.ok()) logger_.Log(LogSeverity::kError, "close", status);
    return status;
  }).IgnoreError();
}

kv::Options Engine::KvOptions(const EngineOptions& options) const {
  kv::Options kv_options = PlainKvOptions(options);
  if (!kv_options.all_far) kv_options.far = far_rows_;
  kv_options.log = [log = log_](kv::Severity severity, std::string_view text) {
    log->Log(severity == kv::Severity::kInfo      ? LogSeverity::kInfo
             : severity == kv::Severity::kWarning ? LogSeverity::kWarning
                                                  : LogSeverity::kError,
             "kv", text);
  };
  return kv_options;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Create(
    const std::string& directory, EngineOptions options) {
  CKPTREE_RETURN_IF_ERROR(CheckMayOpen());
  CKPTREE_RETURN_IF_ERROR(CheckOptions(options.store));
  if (options.store.read_only) {
    return absl::InvalidArgumentError(
        "a store opened read only cannot be created: drop read_only");
  }
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Replicator> remote,
                           Connect(directory, options, /*fetch=*/false));
  if (remote != nullptr && !remote->remote_uuid().empty()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("there is a store in %s", options.store.remote));
  }
  return CreateThere(directory, std::move(options), std::move(remote));
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::CreateThere(
    const std::string& directory, EngineOptions options,
    std::shared_ptr<Replicator> remote) {
  CKPTREE_RETURN_IF_ERROR(CheckOptions(options.store));
  CKPTREE_RETURN_IF_ERROR(CheckHoldsNoObjects(directory));
  std::shared_ptr<Engine> engine(
      new Engine(directory, std::move(options.store)));
  kv::Options kv_options = engine->KvOptions(options);
  kv_options.version_floor = options.version_floor;
  schema::StoreRecord store;
  // A first writer may have ended before it shipped anything.
  store.uuid = remote != nullptr && !remote->remote_uuid().empty()
                   ? remote->remote_uuid()
                   : NewUuid();
  engine->ShipTo(std::move(remote), &kv_options);
  store.format = schema::kFormatNumber;
  store.created_ns = absl::GetCurrentTimeNanos();
  store.created_by = std::string(Version());
  kv::WriteBatch batch;
  batch.Put(Space::kRecords, schema::BranchKey(kMainBranch),
            schema::EncodeBranchRecord({0}));
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::Database> database,
      kv::Database::Create(directory, kv_options, store.uuid,
                           schema::StoreKey(), schema::EncodeStoreRecord(store),
                           std::move(batch)));
  engine->store_ = std::move(store);
  return Started(std::move(engine), std::move(database), kv_options);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(
    const std::string& directory, const EngineOptions& options) {
  CKPTREE_RETURN_IF_ERROR(CheckMayOpen());
  if (options.use == EngineOptions::Use::kReadSalvaged) {
    return OpenSalvaged(directory, options);
  }
  // Where there is no memory, not even a thread can be started.
  absl::StatusOr<std::shared_ptr<Engine>> opened = GuardedResult(
      "opening the store", [&] { return OpenThere(directory, options); });
  if (MadeRoom(opened.status())) opened = OpenThere(directory, options);
  if (options.store.read_only) {
    if (absl::IsNotFound(opened.status())) {
      const absl::Status objects = CheckHoldsNoObjects(directory);
      if (!objects.ok()) return absl::NotFoundError(objects.message());
    }
    // What a writer takes away while we look seems to be damage:
    // it is damage where it is the same when looked at again.
    for (int i = 0; i < kAttempts && opened.ok(); ++i) {
      const std::vector<std::string> warnings = (*opened)->WarningsSoFar();
      if (warnings.empty()) break;
      absl::StatusOr<std::shared_ptr<Engine>> again =
          OpenThere(directory, options);
      const bool same = again.ok() && (*again)->WarningsSoFar() == warnings;
      opened = std::move(again);
      if (same) break;
    }
    if (opened.ok()) (*opened)->TellOfOpen();
    return opened;
  }
  // Of several that start at once one creates the store; the others find it
  // missing, then there, or half made for as long as they do not have its lock.
  for (int i = 0; i < kAttempts && options.store.create_if_missing &&
                  absl::IsNotFound(opened.status());
       ++i) {
    CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Replicator> remote,
                             Connect(directory, options, /*fetch=*/false));
    opened = CreateThere(directory, options, std::move(remote));
    if (MadeRoom(opened.status())) {
      opened = OpenThere(directory, options);
      continue;
    }
    if (opened.ok() || (!absl::IsAlreadyExists(opened.status()) &&
                        !absl::IsInvalidArgument(opened.status()))) {
      break;
    }
    const absl::Status refused = opened.status();
    opened = OpenThere(directory, options);
    if (absl::IsNotFound(opened.status()) && i + 1 == kAttempts) return refused;
  }
  if (opened.ok()) (*opened)->TellOfOpen();
  return opened;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenThere(
    const std::string& directory, const EngineOptions& options) {
  CKPTREE_RETURN_IF_ERROR(CheckOptions(options.store));
  const bool read_only = options.store.read_only;
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Replicator> remote,
                           Connect(directory, options, /*fetch=*/true));
  std::shared_ptr<Engine> engine(new Engine(directory, options.store));
  engine->lists_later_ = read_only && options.use == EngineOptions::Use::kAsked;
  engine->takes_leases_ = engine->lists_later_ && !options.leaves_nothing;
  kv::Options kv_options = engine->KvOptions(options);
  engine->ShipTo(std::move(remote), &kv_options);
  const kv::Mode mode = !read_only ? kv::Mode::kReadWrite
                        : options.use == EngineOptions::Use::kReadLocked
                            ? kv::Mode::kReadLocked
                            : kv::Mode::kRead;
  OpenFindings findings;
  const auto check = [&findings, read_only](
                         const kv::Database& database,
                         const kv::OpenReport& report) -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(findings, CheckStore(database, report));
    if (!read_only && !findings.read_only_feature.empty()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the store uses '%s', with which this engine may only read: open it "
          "read only, or use a newer engine",
          findings.read_only_feature));
    }
    return absl::OkStatus();  // Segments that are gone cost their leaves.
  };
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::Database> database,
      kv::Database::Open(directory, kv_options, mode, check));
  engine->store_ = findings.store;
  {
    absl::MutexLock lock(&engine->mu_);
    engine->warnings_ = findings.damage;
  }
  CKPTREE_ASSIGN_OR_RETURN(
      engine, Started(std::move(engine), std::move(database), kv_options));
  CKPTREE_RETURN_IF_ERROR(engine->LookAgainFor(findings.damage));
  return engine;
}

// Without a journal and without the checks of an open.
absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenSalvaged(
    const std::string& directory, const EngineOptions& options) {
  CKPTREE_RETURN_IF_ERROR(CheckOptions(options.store));
  std::shared_ptr<Engine> engine(new Engine(directory, options.store));
  const kv::Options kv_options = engine->KvOptions(options);
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::Database> database,
      kv::Database::Open(directory, kv_options, kv::Mode::kReadSalvaged,
                         [](const kv::Database&, const kv::OpenReport&) {
                           return absl::OkStatus();
                         }));
  absl::StatusOr<schema::StoreRecord> store = ReadStoreRecord(*database);
  if (absl::IsFailedPrecondition(store.status())) return store.status();
  if (store.ok()) engine->store_ = *std::move(store);
  CKPTREE_RETURN_IF_ERROR(engine->Start(std::move(database), kv_options));
  engine->TellOfOpen();
  return engine;
}

absl::Status Engine::Start(std::unique_ptr<kv::Database> database,
                           const kv::Options& kv_options) {
  database_ = std::move(database);
  CloseAtExit(this, [this] { CloseAndLog(); });
  far_rows_->Begin(database_.get(), store_.uuid);
  kv_options_ = kv_options;
  // A reader saves nothing.
  retention_ =
      std::make_unique<Retention>(database_.get(), &catalog_, arena_.get(),
                                  options_.statistics || options_.read_only);
  CommitContext commits;
  commits.check_writable = [this] { return CheckWritable(); };
  commits.database = database_.get();
  commits.catalog = &catalog_;
  commits.keeper = &keeper_;
  commits.on_removed = [this] { collector_->Notify(); };
  commits_ = std::make_unique<CatalogCommits>(std::move(commits));
  settings_ = std::make_unique<SettingsCommits>(
      commits_.get(), &catalog_, retention_.get(),
      [this](absl::FunctionRef<void()> work) { RunPaused(work); });
  absl::StatusOr<ChainLinks> links;
  {
    catalog_.SetDoubt(database_->report().lost);
    const std::uint64_t view = database_->view();
    std::vector<std::string> bad_rows =
        options_.read_only ? LoadCatalog() : LoadCatalog(&links);
    absl::MutexLock lock(&mu_);
    const auto& known = database_->report().warnings;
    warnings_.insert(warnings_.end(), known.begin(), known.end());
    loaded_view_ = view;
    bad_rows_ = std::move(bad_rows);
  }
  if (options_.read_only) {
    // What was listed is complete after one more look.
    return database_->following() ? database_->Refresh() : absl::OkStatus();
  }
  // Its numbers and names might be taken a second time.
  CKPTREE_RETURN_IF_ERROR(catalog_.CheckListed());
  if (store_.format < schema::kFormatNumber) {
    // Before anything is written that an engine of that format does not know.
    CKPTREE_RETURN_IF_ERROR(RaiseFormat(database_.get()));
    logger_.Log(LogSeverity::kInfo, "open",
                absl::StrFormat("the store had format %d, and has %d now",
                                store_.format, schema::kFormatNumber));
    store_.format = schema::kFormatNumber;
  }
  CKPTREE_RETURN_IF_ERROR(ForgetFarThatAreHere());
  CKPTREE_ASSIGN_OR_RETURN(const int unlisted,
                           DropUnlistedFiles(database_.get()));
  if (unlisted > 0) {
    logger_.Log(LogSeverity::kInfo, "open",
                absl::StrFormat("dropped %d files of saves that were never "
                                "committed",
                                unlisted));
  }
  if (const absl::Status mended = MendSegments(); !mended.ok()) {
    logger_.Log(LogSeverity::kWarning, "open", mended);
  }
  // Nothing builds segments for this store but its one writer.
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> attempts,
                           database_->ListStaging());
  for (const std::string& attempt : attempts) {
    CKPTREE_RETURN_IF_ERROR(database_->RemoveStaging(attempt));
  }
  if (const absl::Status status = LoadChain(std::move(links)); !status.ok()) {
    logger_.Log(LogSeverity::kWarning, "collect", status);
  }
  WriterContext context;
  context.database = database_.get();
  context.kv_options = kv_options;
  context.catalog = &catalog_;
  context.logger = &logger_;
  context.arena = save_arena_.get();
  context.uuid = store_.uuid;
  context.statistics = options_.statistics;
  context.coding = &coding_;
  context.on_progress = options_.on_progress;
  // The journal's ceiling counts where its records are whole.
  context.highest_version =
      std::max({database_->report().highest_version, keeper_.newest(),
                catalog_.HighestVersion()});
  context.keeper = &keeper_;
  context.retention = retention_.get();
  context.commit_mu = commits_->mu();
  context.pool = &pool_;
  context.staging_idle = options_.staging_idle;
  context.most_in_flight = options_.max_saves_in_flight;
  context.on_removed = [this] { collector_->Notify(); };
  if (replicator_ != nullptr) {
    CKPTREE_RETURN_IF_ERROR(BeginShipping(context.highest_version));
    if (options_.durable == Durable::kRemote) {
      context.on_committed = [this](std::uint64_t version) {
        return replicator_->WaitForVersion(version, options_.remote_timeout);
      };
      context.on_built = [this](const BuiltSegment& segment) {
        replicator_->Built(segment.row_key, segment.staged.path);
      };
    }
  }
  writer_ = std::make_unique<StepWriter>(std::move(context));
  CollectorContext collection;
  collection.database = database_.get();
  collection.keeper = &keeper_;
  collection.logger = &logger_;
  collection.arena = arena_.get();
  collection.version_in_flight = [this] {
    return writer_->version_in_flight();
  };
  collection.leased = [this] { return kv::LeasedVersions(directory_); };
  collection.background = options_.collect;
  collection.bytes_per_second = options_.collect_bytes_per_second;
  collection.code = coding_.may_code();
  collector_ = std::make_unique<Collector>(std::move(collection));
  keeper_.OnReleased([this] { collector_->Notify(); });
  RequestContext requested;
  requested.commits = commits_.get();
  requested.settings = settings_.get();
  requested.collector = collector_.get();
  RequestServerContext server;
  server.directory = directory_;
  server.permissions = options_.permissions;
  server.database = database_.get();
  server.logger = &logger_;
  server.execute = [requested](const schema::StoreRequest& request,
                               const std::function<bool()>& cancelled) {
    return ExecuteRequest(requested, request, cancelled);
  };
  requests_ = std::make_unique<RequestServer>(std::move(server));
  if (replicator_ != nullptr) BeginKeeping();
  return absl::OkStatus();
}

bool Engine::forked() const { return !mark_.Holds(); }

absl::Status Engine::CheckUsable() const {
  if (forked()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "store %s was opened by pid %d, this is pid %d: open it again after "
        "fork(), read only",
        directory_, pid_, getpid()));
  }
  if (closed_.load()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("store %s was closed", directory_));
  }
  if (PolicyThread::IsOf(database_.get())) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "a function of a policy must not call store %s, which asks it: all "
        "that it may know are its arguments",
        directory_));
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckWritable() const {
  CKPTREE_RETURN_IF_ERROR(CheckUsable());
  if (options_.read_only) {
    return absl::FailedPreconditionError(
        absl::StrFormat("store %s was opened read only", directory_));
  }
  // Who was fenced makes no commit that nobody else will see.
  return replicator_ == nullptr ? absl::OkStatus() : replicator_->health();
}

void Engine::TellOfOpen() const {
  for (const std::string& warning : WarningsSoFar()) {
    logger_.Log(LogSeverity::kWarning, "open", warning);
  }
  for (const std::string& note : notes()) {
    logger_.Log(LogSeverity::kWarning, "open", note);
  }
}

absl::StatusOr<std::shared_ptr<const StepTree>> Engine::Tree(
    const base::Digest& digest) {
  {
    absl::MutexLock lock(&mu_);
    if (last_tree_ != nullptr && last_tree_->digest() == digest) {
      return last_tree_;
    }
    if (const auto it = trees_.find(digest); it != trees_.end()) {
      if (auto tree = it->second.lock()) {
        last_tree_ = tree;
        return tree;
      }
      trees_.erase(it);
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<const StepTree> tree,
                           StepTree::Open(*database_, digest));
  absl::MutexLock lock(&mu_);
  std::erase_if(trees_, [](const auto& t) { return t.second.expired(); });
  trees_[digest] = tree;
  last_tree_ = tree;
  return tree;
}

void Engine::RunPaused(absl::FunctionRef<void()> work) {
  if (collector_ == nullptr) {
    work();
  } else {
    collector_->RunPaused(work);
  }
}

absl::Status Engine::Refresh() {
  CKPTREE_RETURN_IF_ERROR(CheckUsable());
  CacheTurn turn;  // Until what it brought is read.
  if (!address_.empty()) {
    const RemoteAttendant attendant(trouble_, HadEnough());
    CKPTREE_ASSIGN_OR_RETURN(
        turn, AdvanceCache(cached_, PlainKvOptions({.store = options_})));
  }
  if (!options_.read_only) return absl::OkStatus();
  // Refresh, list, refresh again: what was listed is then complete.
  CKPTREE_RETURN_IF_ERROR(database_->Refresh());
  {
    const absl::MutexLock one(&reload_mu_);
    std::uint64_t loaded = 0;
    bool whole = false;
    {
      const absl::MutexLock lock(&mu_);
      loaded = loaded_view_;
      // What could not be read is tried again.
      whole = bad_rows_.empty() && catalog_.CheckSeen().ok();
    }
    if (whole && loaded == database_->view()) return absl::OkStatus();
    const auto changes = database_->ChangesSince(loaded);
    if (whole && changes.has_value() &&
        catalog_.Update(*database_, changes->keys)) {
      const absl::MutexLock lock(&mu_);
      loaded_view_ = changes->view;
    } else {
      ReloadCatalog();
    }
  }
  return database_->Refresh();
}

std::shared_ptr<const void> Engine::LeaseVersion(std::uint64_t version) {
  std::shared_ptr<kv::Lease> lease;
  {
    absl::MutexLock lock(&mu_);
    if (lease_ == nullptr && !no_lease_) {
      auto made = kv::Lease::Make(directory_, options_.permissions);
      // A full disk, or too many open files, may pass.
      no_lease_ = absl::IsPermissionDenied(made.status());
      if (made.ok()) lease_ = *std::move(made);
    }
    lease = lease_;
  }
  if (lease == nullptr || !lease->Hold(version).ok()) return nullptr;
  return std::shared_ptr<const void>(
      lease.get(), [lease, version](const void*) { lease->Drop(version); });
}

absl::StatusOr<std::shared_ptr<const void>> Engine::HoldListed() {
  if (writer_ != nullptr || !address_.empty() || !database_->following()) {
    return nullptr;
  }
  std::shared_ptr<const void> lease = LeaseVersion(kv::kEveryVersion);
  if (lease == nullptr) return nullptr;
  // In this order: what is removed before is not listed, and what is removed
  // later is by a commit whose collector sees the lease. What another one holds
  // has been listed.
  if (!holds_listed()) CKPTREE_RETURN_IF_ERROR(Refresh());
  listed_holds_.fetch_add(1);
  return std::shared_ptr<const void>(
      lease.get(), [this, lease](const void*) { listed_holds_.fetch_sub(1); });
}

bool Engine::StillThere(const schema::StepRecord& record) {
  CacheTurn turn;
  if (!address_.empty()) {
    auto taken = AdvanceCache(cached_, PlainKvOptions({.store = options_}));
    if (!taken.ok()) return true;
    turn = *std::move(taken);
  }
  if (!database_->Refresh().ok()) return true;
  const auto row = database_->Get(Space::kRecords,
                                  schema::StepKey(record.branch, record.step));
  if (!row.ok()) return true;  // Whatever is wrong, it is not that.
  if (!row->has_value()) return false;
  const auto now = schema::DecodeStepRecord(**row);
  return !now.ok() || now->version == record.version;
}

absl::Status Engine::Close() {
  if (forked()) return CheckUsable();
  if (EngineThread::IsOf(database_.get())) {
    return absl::FailedPreconditionError(
        "a callback must not close the store that calls it: closing waits for "
        "the callback");
  }
  if (PolicyThread::IsOf(database_.get())) {
    return absl::FailedPreconditionError(
        "a function of a policy must not close the store that asks it");
  }
  const absl::MutexLock close_lock(&close_mu_);
  if (closed_.load()) return absl::OkStatus();
  // What it has taken is done before the store counts as closed; what is asked
  // for later, its asker does.
  if (requests_ != nullptr) requests_->Stop();
  closed_.store(true);
  absl::Status status;
  if (writer_ != nullptr) {
    writer_->Refuse();
    status.Update(
        writer_->WaitFor(writer_->submitted(), absl::InfiniteDuration()));
    status.Update(writer_->failed().Take(/*only_dropped=*/false));
    writer_->Stop();
  }
  if (collector_ != nullptr) collector_->Stop();
  if (replicator_ != nullptr) {
    status.Update(replicator_->Stop(options_.remote_timeout));
  }
  {
    absl::MutexLock lock(&mu_);
    trees_.clear();
    last_tree_.reset();
    lease_.reset();
  }
  catalog_.Close();
  if (database_ != nullptr) status.Update(database_->Close());
  far_rows_->Rest();
  if (cached_.segments != nullptr) cached_.segments->Rest();
  return status;
}

Stats Engine::stats() const {
  Stats stats = writer_ != nullptr ? writer_->stats() : Stats();
  stats.bytes_read = bytes_read_.load();
  stats.staging_bytes_in_use = pool_.in_use();
  return stats;
}

}  // namespace ckptree::internal
