// SPDX-License-Identifier: Apache-2.0

#include "core/remote/replicator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/remote/mirror.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "core/version/open_check.h"
#include "kv/conditional_put.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteCommit;
using schema::RemoteRow;
using schema::Space;

// Of one request that is not for a segment.
constexpr absl::Duration kRequestTime = absl::Minutes(1);
// Of an open: all commits are read.
constexpr absl::Duration kOpenTime = absl::Minutes(30);
// Who has not closed the store, and wrote to it since, may still be alive.
constexpr absl::Duration kMayBeAlive = absl::Minutes(10);
// More rows than that stand in objects of their own.
constexpr std::size_t kRowsInCommit = std::size_t{8} << 20;
constexpr std::size_t kRowsInObject = std::size_t{16} << 20;
// Of an open, each behind another's commit.
constexpr int kOpensBeforeClaim = 8;
// How long a writer waits for who claims the store, and looks meanwhile.
constexpr absl::Duration kPauseForClaim = absl::Seconds(20);
constexpr absl::Duration kLookForOpen = absl::Milliseconds(20);
constexpr std::size_t kMostClaimBytes = 64;
// An index is written behind so many commits: what an open reads beside it.
constexpr std::uint64_t kCommitsPerIndex = 3;

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// Before try number `tries`, at random up to a bound that doubles to 20 s.
absl::Duration PauseOf(int tries) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const double most =
      std::min(20.0, 0.1 * static_cast<double>(1 << std::min(tries, 10)));
  return absl::Seconds(
      std::uniform_real_distribution<double>(most / 2, most)(random));
}

// Saves go on in a store that is damaged, and so does shipping where it can:
// only damage of the chain ends it.
absl::Status DamagedHere(absl::Status status) {
  return absl::IsDataLoss(status) ? absl::UnavailableError(status.message())
                                  : status;
}

std::size_t BytesOfRow(const RemoteRow& row) {
  return row.key.size() + (row.value.has_value() ? row.value->size() : 0) + 16;
}

}  // namespace

Replicator::Replicator(std::unique_ptr<kv::ObjectStore> store,
                       std::string directory, const StoreOptions& options,
                       kv::Options kv_options)
    : store_(std::move(store)),
      directory_(std::move(directory)),
      kv_options_(std::move(kv_options)),
      take_over_(options.take_over) {}

Replicator::~Replicator() { Stop(absl::ZeroDuration()).IgnoreError(); }

absl::StatusOr<std::shared_ptr<Replicator>> Replicator::Make(
    const std::string& directory, const StoreOptions& options,
    const kv::Options& kv_options, bool fetch) {
  const std::string above =
      std::filesystem::path(kv::AbsolutePath(directory)).parent_path().string();
  if (std::error_code error; !std::filesystem::exists(above, error)) {
    // Before anything is said there of a store that cannot be made.
    return absl::NotFoundError(absl::StrFormat(
        "no store can be made in %s: there is no folder %s; make that first",
        directory, above));
  }
  const kv::Call call = kv::Call::Within(kRequestTime);
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::ObjectStore> store,
      kv::OpenObjectStore(options.remote, kv::ObjectStoreOptions(), call));
  std::shared_ptr<Replicator> made(
      new Replicator(std::move(store), directory, options, kv_options));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                           FindRemoteStore(*made->store_, call));
  if (there.has_value()) made->uuid_ = there->uuid;
  CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found,
                           kv::LookAt(kv::AbsolutePath(directory)));
  if (!fetch || !there.has_value() || !found.Vacant()) return made;
  // Taken over before it is fetched: what is fetched is then the newest, also
  // where the writer before is alive.
  const kv::Call opening = kv::Call::Within(kOpenTime);
  made->note_.local = kv::NewWriteId();
  made->chain_ = std::make_unique<RemoteChain>(made->store_.get(), made->uuid_);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<schema::RemoteIndex> index,
      GoOnFromIndex(made->chain_.get(), *made->store_, made->uuid_, opening));
  bool ships = index.has_value() && ShipsAnything(*index);
  const auto read_on = [&] {
    return made->chain_->ReadOn(
        [&ships](const RemoteCommit& commit) {
          ships |= commit.shape == RemoteCommit::Shape::kShip;
          return absl::OkStatus();
        },
        opening);
  };
  CKPTREE_RETURN_IF_ERROR(read_on());
  if (!ships) {
    // Its first writer ended before it shipped anything.
    made->chain_.reset();
    return made;
  }
  CKPTREE_RETURN_IF_ERROR(made->CheckUnused(opening));
  CKPTREE_RETURN_IF_ERROR(
      kv::ProveConditionalPut(*made->store_, HexOf(made->uuid_), opening));
  CKPTREE_RETURN_IF_ERROR(made->AskOpen(
      [&]() -> absl::StatusOr<RemoteCommit> {
        CKPTREE_RETURN_IF_ERROR(read_on());
        return made->Draft(RemoteCommit::Shape::kOpen);
      },
      opening));
  CKPTREE_RETURN_IF_ERROR(
      FetchStore(*made->store_, made->uuid_, directory, kv_options));
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options, directory, made->note_));
  return made;
}

void Replicator::Note(std::uint64_t ordinal, std::uint64_t version,
                      const kv::WriteBatch& batch) {
  const absl::MutexLock lock(&mu_);
  for (const kv::WriteBatch::Operation& operation : batch.operations()) {
    changed_.emplace(operation.space, operation.key);
  }
  noted_ = ordinal;
  ceiling_ = std::max(ceiling_, version);
  if (version != 0) ordinal_of_[version] = ordinal;
}

RemoteCommit Replicator::Draft(RemoteCommit::Shape shape) const {
  RemoteCommit draft;
  draft.shape = shape;
  draft.local = absl::HexStringToBytes(note_.local);
  draft.host = HostName();
  draft.pid = static_cast<std::uint64_t>(getpid());
  return draft;
}

// The clock of the store, by an object that is made for that.
absl::StatusOr<absl::Time> Replicator::StoreTime(const kv::Call& call) {
  const std::string id = kv::NewWriteId();
  const std::string name = absl::StrFormat("%s/clock-%s", HexOf(uuid_), id);
  CKPTREE_RETURN_IF_ERROR(store_->Put(name, BytesOf(id), call));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::ObjectInfo> info,
                           store_->Head(name, call));
  store_->Delete(std::span(&name, 1), call).IgnoreError();
  if (info.has_value()) return info->modified;
  return absl::DataLossError(absl::StrFormat(
      "%s was put to %s and is not there", name, store_->address()));
}

std::string Replicator::ClaimName() const { return HexOf(uuid_) + "/claim"; }

// Of two who ask for the next ordinal again and again the one who goes on from
// its own commit is always ahead of the one who has to read it first: who takes
// over asks for a pause then.
absl::Status Replicator::AskOpen(
    absl::FunctionRef<absl::StatusOr<RemoteCommit>()> draft,
    const kv::Call& call) {
  bool claimed = false;
  absl::Status opened;
  for (int tries = 1;; ++tries) {
    CKPTREE_ASSIGN_OR_RETURN(RemoteCommit open, draft());
    opened = chain_->Append(std::move(open), call);
    if (!absl::IsAborted(opened) || kv::MonotonicNow() >= call.deadline) break;
    if (tries % kOpensBeforeClaim == 0) {
      const std::string id = kv::NewWriteId();
      CKPTREE_RETURN_IF_ERROR(store_->Put(ClaimName(), BytesOf(id), call));
      claimed = true;
    }
  }
  const std::string claim = ClaimName();
  if (claimed) store_->Delete(std::span(&claim, 1), call).IgnoreError();
  return opened;
}

// A claim that nobody makes good costs one pause.
absl::Status Replicator::YieldToClaim(const std::stop_token& stop) {
  const kv::Call call = kv::Call::Within(kRequestTime, stop);
  const absl::StatusOr<std::optional<std::string>> claim =
      GetObject(*store_, ClaimName(), kMostClaimBytes, call);
  if (!claim.ok() || !claim->has_value() || **claim == claim_) {
    return absl::OkStatus();
  }
  claim_ = **claim;
  const absl::Time until = kv::MonotonicNow() + kPauseForClaim;
  while (kv::MonotonicNow() < until && !stop.stop_requested()) {
    CKPTREE_RETURN_IF_ERROR(chain_->ReadOn(
        [](const RemoteCommit&) { return absl::OkStatus(); }, call));
    CKPTREE_RETURN_IF_ERROR(chain_->fenced());
    const absl::MutexLock lock(&mu_);
    const auto stopped = [&stop] { return stop.stop_requested(); };
    mu_.AwaitWithTimeout(absl::Condition(&stopped), kLookForOpen);
  }
  const std::string name = ClaimName();
  store_->Delete(std::span(&name, 1), call).IgnoreError();
  return absl::OkStatus();
}

// Never needed for safety: a second start by mistake would end a healthy run.
absl::Status Replicator::CheckUnused(const kv::Call& call) {
  const std::optional<RemoteCommit>& newest = chain_->newest();
  if (take_over_ || !newest.has_value() ||
      newest->shape == RemoteCommit::Shape::kClose ||
      HexOf(newest->local) == note_.local) {
    return absl::OkStatus();
  }
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time written, chain_->NewestTime(call));
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time now, StoreTime(call));
  if (now - written >= kMayBeAlive) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "host %s, pid %d, wrote to %s %s ago and has not closed it: it may still "
      "be training. Wait until that is %s, or set take_over, which ends it at "
      "its next save",
      newest->host, newest->pid, store_->address(),
      absl::FormatDuration(absl::Trunc(now - written, absl::Seconds(1))),
      absl::FormatDuration(kMayBeAlive)));
}

absl::Status Replicator::Begin(kv::Database* database, const std::string& uuid,
                               std::uint64_t highest_version,
                               const Logger* logger) {
  database_ = database;
  logger_ = logger;
  const kv::Call call = kv::Call::Within(kOpenTime);
  CKPTREE_ASSIGN_OR_RETURN(note_, ReadLocalNote(kv_options_, directory_));
  if (!note_.fenced.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s goes on no more: %s. Open it without a remote to read it; an empty "
        "directory with this remote fetches the store from there",
        directory_, note_.fenced));
  }
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options_, directory_, note_));
  if (uuid_.empty()) {
    CKPTREE_RETURN_IF_ERROR(
        kv::ProveConditionalPut(*store_, HexOf(uuid), call));
    const schema::RemoteStore mine{uuid, std::string(Version())};
    CKPTREE_ASSIGN_OR_RETURN(const kv::PutAnswer answer,
                             kv::PutSettled(*store_, kRemoteStoreName,
                                            schema::EncodeRemoteStore(mine),
                                            kv::NewWriteId(), call));
    if (answer.outcome == kv::PutOutcome::kUnknown) return answer.reason;
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                             FindRemoteStore(*store_, call));
    if (there.has_value()) uuid_ = there->uuid;
  } else {
    CKPTREE_RETURN_IF_ERROR(
        kv::ProveConditionalPut(*store_, HexOf(uuid_), call));
  }
  if (uuid_ != uuid) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s holds the store %s, and %s is the store %s: give it an address of "
        "its own",
        store_->address(), HexOf(uuid_), directory_, HexOf(uuid)));
  }
  if (chain_ == nullptr) {
    chain_ = std::make_unique<RemoteChain>(store_.get(), uuid_);
  }
  {
    const absl::MutexLock lock(&mu_);
    ceiling_ = std::max(ceiling_, highest_version);
  }
  CKPTREE_RETURN_IF_ERROR(database_->BetweenCommits(
      [&](std::uint64_t ordinal) { return TakeOver(ordinal, call); }));
  thread_ = std::jthread([this](const std::stop_token& stop) { Loop(stop); });
  return absl::OkStatus();
}

absl::Status Replicator::TakeOver(std::uint64_t ordinal, const kv::Call& call) {
  ChainRows rows(uuid_, absl::HexStringToBytes(note_.local),
                 /*keeps_rows=*/true);
  // Make() took it over: it is only read once more, for its rows.
  const bool taken = chain_->era() != 0;
  RemoteChain again(store_.get(), uuid_);
  RemoteChain& chain = taken ? again : *chain_;
  std::uint64_t place = 0;
  std::set<RowName> differ;
  const auto pass = [](const RemoteRow&) { return absl::OkStatus(); };
  bool first = true;
  const auto read = [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(
        std::exchange(first, false)
            ? rows.Read(&chain, *store_, call, pass,
                        [] { return absl::OkStatus(); })
            : rows.ReadOn(&chain, *store_, call, pass));
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::uint64_t> known,
        rows.PlaceOf(directory_, store_->address(), ordinal));
    place = known.value_or(ordinal);
    if (!known.has_value() || place < ordinal) {
      CKPTREE_ASSIGN_OR_RETURN(differ, rows.Differences(*database_));
    }
    if (known.has_value() || differ.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s and %s are the same store and differ in %d rows, and neither is "
        "known to have come from the other: nothing is shipped. An empty "
        "directory with this remote fetches the store from there",
        directory_, store_->address(), differ.size()));
  };
  if (taken) {
    CKPTREE_RETURN_IF_ERROR(read());
  } else {
    CKPTREE_RETURN_IF_ERROR(AskOpen(
        [&]() -> absl::StatusOr<RemoteCommit> {
          CKPTREE_RETURN_IF_ERROR(read());
          CKPTREE_RETURN_IF_ERROR(CheckUnused(call));
          RemoteCommit open = Draft(RemoteCommit::Shape::kOpen);
          open.from = open.to = place;
          return open;
        },
        call));
    CKPTREE_RETURN_IF_ERROR(rows.index().AddWithRows(*chain_->newest(), {}));
  }
  index_ = rows.TakeIndex();
  const absl::MutexLock lock(&mu_);
  changed_ = std::move(differ);
  noted_ = ordinal;
  shipped_ = place;
  return absl::OkStatus();
}

void Replicator::Loop(const std::stop_token& stop) {
  const EngineThread mark(database_);
  int tries = 0;
  std::string told;
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
      const auto due = [this] {
        mu_.AssertReaderHeld();
        return stopping_ || noted_ > shipped_;
      };
      mu_.Await(absl::Condition(&due));
      if (stop.stop_requested() || !health_.ok()) return;
      if (noted_ <= shipped_) return;  // Stopping, and all is there.
    }
    const absl::Status shipped =
        GuardedStatus("shipping", [&] { return ShipOnce(stop); });
    if (stop.stop_requested()) return;
    // What was written again in the meantime is looked for once more at once.
    if (absl::IsAborted(shipped) && tries == 0) {
      ++tries;
      continue;
    }
    if (shipped.ok()) {
      if (!told.empty()) {
        logger_->Log(LogSeverity::kInfo, "remote",
                     absl::StrFormat("%s takes commits again", address()));
      }
      told.clear();
      tries = 0;
      continue;
    }
    const bool ended = !chain_->fenced().ok() || absl::IsDataLoss(shipped);
    const std::string text(shipped.message());
    if (text != told) {
      logger_->Log(ended ? LogSeverity::kError : LogSeverity::kWarning,
                   "remote", shipped);
      told = text;
    }
    if (!chain_->fenced().ok()) {
      note_.fenced = std::string(chain_->fenced().message());
      const absl::Status noted = WriteLocalNote(kv_options_, directory_, note_);
      if (!noted.ok()) logger_->Log(LogSeverity::kError, "remote", noted);
    }
    const absl::MutexLock lock(&mu_);
    trouble_ = shipped;
    if (ended) {
      health_ = shipped;
      return;
    }
    // Ends early where the store is closed: one more try, then.
    const bool closing = stopping_;
    const auto changed = [this, &closing, &stop] {
      mu_.AssertReaderHeld();
      return stop.stop_requested() || stopping_ != closing;
    };
    mu_.AwaitWithTimeout(absl::Condition(&changed), PauseOf(++tries));
  }
}

absl::StatusOr<Replicator::Round> Replicator::Collect() {
  Round round;
  CKPTREE_RETURN_IF_ERROR(
      database_->BetweenCommits([&](std::uint64_t ordinal) -> absl::Status {
        round.to = ordinal;
        {
          const absl::MutexLock lock(&mu_);
          round.names = changed_;
          round.ceiling = ceiling_;
        }
        for (const RowName& name : round.names) {
          RemoteRow row{name.first, name.second, std::nullopt};
          CKPTREE_ASSIGN_OR_RETURN(row.value,
                                   database_->Get(name.first, name.second));
          if (row.value.has_value() && name.first == Space::kRecords) {
            const auto segment = schema::DecodeSegmentKey(name.second);
            if (segment.has_value() && !index_->segments().contains(name.second)) {
              round.segments.push_back(*segment);
            }
          }
          round.rows.push_back(std::move(row));
        }
        const absl::MutexLock lock(&mu_);
        changed_.clear();
        return absl::OkStatus();
      }));
  return round;
}

// Rule 6: all of it is answered before the commit is asked for.
absl::Status Replicator::Upload(const Round& round, const std::stop_token& stop,
                                RemoteCommit* commit) {
  if (!round.segments.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                             SortedLiveFiles(*database_));
    for (const schema::SegmentKeyFields& segment : round.segments) {
      CKPTREE_ASSIGN_OR_RETURN(
          schema::RemoteSegment uploaded,
          UploadSegment(*database_, kv_options_, files, segment, chain_->era(),
                        uuid_, *store_, stop));
      commit->segments.push_back(std::move(uploaded));
    }
  }
  std::size_t bytes = 0;
  for (const RemoteRow& row : round.rows) bytes += BytesOfRow(row);
  if (bytes <= kRowsInCommit) {
    commit->rows = round.rows;
    return absl::OkStatus();
  }
  std::vector<RemoteRow> some;
  std::size_t have = 0;
  const auto put = [&]() -> absl::Status {
    const std::string object = schema::EncodeRemoteRows(some);
    schema::RemoteRowsObject about{NewRemoteId(), object.size(),
                                   base::DigestOf(object)};
    CKPTREE_RETURN_IF_ERROR(
        store_->Put(RemoteRowsName(uuid_, chain_->era(), about),
                    BytesOf(object), CallFor(object.size(), stop)));
    commit->rows_objects.push_back(std::move(about));
    some.clear();
    have = 0;
    return absl::OkStatus();
  };
  for (const RemoteRow& row : round.rows) {
    some.push_back(row);
    have += BytesOfRow(row);
    if (have >= kRowsInObject) CKPTREE_RETURN_IF_ERROR(put());
  }
  return some.empty() ? absl::OkStatus() : put();
}

absl::Status Replicator::ShipOnce(const std::stop_token& stop) {
  const kv::Call call = kv::Call::Within(kRequestTime, stop);
  absl::Status status;
  if (asked_.has_value()) {
    // Rule 4: nothing else is asked for before.
    status = chain_->Settle(call);
  } else {
    absl::StatusOr<Round> round = Collect();
    if (!round.ok()) return DamagedHere(round.status());
    asked_ = *std::move(round);
    RemoteCommit commit = Draft(RemoteCommit::Shape::kShip);
    {
      const absl::MutexLock lock(&mu_);
      commit.from = shipped_;
    }
    commit.to = asked_->to;
    commit.ceiling = asked_->ceiling;
    status = DamagedHere(Upload(*asked_, stop, &commit));
    asked_->commit = commit;
    asked_->commit.rows.clear();
    if (status.ok()) status = chain_->Append(std::move(commit), call);
  }
  if (status.ok()) {
    asked_->commit.ordinal = chain_->ordinal();
    asked_->commit.era = chain_->era();
    const absl::Status added = index_->AddWithRows(asked_->commit, asked_->rows);
    Shipped(asked_->to);
    asked_.reset();
    CKPTREE_RETURN_IF_ERROR(added);
    return WriteIndex(/*any=*/false, stop);
  }
  if (!chain_->pending()) {
    // What is tried next is of the newest commit.
    const absl::MutexLock lock(&mu_);
    changed_.merge(asked_->names);
    asked_.reset();
  }
  return status;
}

absl::Status Replicator::WriteIndex(bool any, const std::stop_token& stop) {
  const std::uint64_t behind = index_->ordinal() - index_->written();
  if (behind < (any ? 1 : kCommitsPerIndex)) return absl::OkStatus();
  if (!any) CKPTREE_RETURN_IF_ERROR(YieldToClaim(stop));
  const absl::Status written =
      index_->Write(chain_->hash(), chain_->era(), *store_, stop);
  // It is tried again behind the next commit: opens read more until then.
  if (!written.ok() && !stop.stop_requested() && logger_ != nullptr) {
    logger_->Log(LogSeverity::kWarning, "remote", written);
  }
  return absl::OkStatus();
}

void Replicator::Shipped(std::uint64_t to) {
  const absl::MutexLock lock(&mu_);
  shipped_ = to;
  trouble_ = absl::OkStatus();
  std::erase_if(ordinal_of_,
                [to](const auto& known) { return known.second <= to; });
}

absl::Status Replicator::WaitForAll(absl::Duration timeout) {
  const absl::MutexLock lock(&mu_);
  const std::uint64_t wanted = noted_;
  const auto there = [this, wanted] {
    mu_.AssertReaderHeld();
    return shipped_ >= wanted || !health_.ok() || stopped_;
  };
  mu_.AwaitWithTimeout(absl::Condition(&there), timeout);
  if (shipped_ >= wanted) return absl::OkStatus();
  if (!health_.ok()) return health_;
  return absl::DeadlineExceededError(absl::StrFormat(
      "%d commits are durable here and not in %s yet%s%s", noted_ - shipped_,
      address(), trouble_.ok() ? "" : ": ", trouble_.message()));
}

absl::Status Replicator::WaitForVersion(std::uint64_t version,
                                        absl::Duration timeout) {
  {
    const absl::MutexLock lock(&mu_);
    if (!ordinal_of_.contains(version)) return absl::OkStatus();
  }
  return WaitForAll(timeout);
}

absl::Status Replicator::health() const {
  const absl::MutexLock lock(&mu_);
  return health_;
}

std::uint64_t Replicator::backlog() const {
  const absl::MutexLock lock(&mu_);
  return noted_ - std::min(noted_, shipped_);
}

absl::Status Replicator::Stop(absl::Duration timeout) {
  {
    const absl::MutexLock lock(&mu_);
    if (stopped_) return absl::OkStatus();
    stopping_ = true;
  }
  absl::Status status;
  if (thread_.joinable()) {
    status = WaitForAll(timeout);
    thread_.request_stop();
    // What it waits for is looked at again when this is given back.
    { const absl::MutexLock lock(&mu_); }
    thread_.join();
  }
  // Also where the open did not come to its end.
  if (status.ok() && chain_ != nullptr && chain_->era() != 0 &&
      chain_->fenced().ok() && !chain_->pending()) {
    RemoteCommit close = Draft(RemoteCommit::Shape::kClose);
    {
      const absl::MutexLock lock(&mu_);
      close.from = close.to = shipped_;
    }
    // Without it the next machine waits ten minutes, or is told not to.
    const absl::Status closed =
        chain_->Append(std::move(close), kv::Call::Within(kRequestTime));
    if (!closed.ok() && logger_ != nullptr) {
      logger_->Log(LogSeverity::kWarning, "remote", closed);
    }
    if (closed.ok() && index_ != nullptr) {
      index_->AddWithRows(*chain_->newest(), {}).IgnoreError();
      WriteIndex(/*any=*/true, {}).IgnoreError();
    }
  }
  const absl::MutexLock lock(&mu_);
  stopped_ = true;
  return status;
}

}  // namespace ckptree::internal
