// SPDX-License-Identifier: Apache-2.0

// Of a replicator: how a store is found, taken over and gone on with.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/remote/chain_rows.h"
#include "core/remote/cleaner.h"
#include "core/remote/early_uploads.h"
#include "core/remote/fetch_back.h"
#include "core/remote/left_stores.h"
#include "core/remote/own_ships.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "core/version/catalog.h"
#include "kv/conditional_put.h"
#include "kv/iterator.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteRow;

namespace {

// Who has not closed the store, and wrote to it since, may still be alive.
constexpr absl::Duration kMayBeAlive = absl::Minutes(10);
// Of an open, each behind another's commit.
constexpr int kOpensBeforeClaim = 8;

}  // namespace

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

// Never needed for safety: a second start by mistake would end a healthy run.
absl::Status Replicator::CheckUnused(const kv::Call& call) {
  const std::optional<RemoteCommit>& newest = chain_->newest();
  if (take_over_ || !newest.has_value() ||
      newest->shape == RemoteCommit::Shape::kClose ||
      HexOf(newest->local) == note_.local) {
    return absl::OkStatus();
  }
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time written, chain_->NewestTime(call));
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time now,
                           RemoteClock(*store_, uuid_, call));
  if (now - written >= kMayBeAlive) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "host %s, pid %d, wrote to %s %s ago and has not closed it: it may still "
      "be training. Wait until that is %s, or set take_over, which ends it at "
      "its next save",
      newest->host, newest->pid, store_->address(),
      absl::FormatDuration(std::max(
          absl::Trunc(now - written, absl::Seconds(1)), absl::Seconds(1))),
      absl::FormatDuration(kMayBeAlive)));
}

// A bucket may be moved, and an address mistyped.
absl::Status Replicator::CheckAddress() {
  // A copy of a directory may go where it likes.
  if (!note_.from.empty() || note_.ships.empty() ||
      note_.ships.back().address == store_->address()) {
    return absl::OkStatus();
  }
  const std::string& before = note_.ships.back().address;
  if (uuid_.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s was shipped to %s so far, and there is no store in %s: see whether "
        "the address is right. Where the store was to be moved, copy its "
        "objects "
        "first; where a second copy of all of it is to begin there, remove "
        "%s/%s",
        directory_, before, store_->address(), directory_, kv::kRemoteName));
  }
  shipped_elsewhere_ = before;
  return absl::OkStatus();
}

// What is there alone can be shipped nowhere else.
absl::Status Replicator::CheckFarAreThere(bool is_there) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string elsewhere,
      FarElsewhere(*database_, is_there ? store_->address() : ""));
  if (elsewhere.empty()) return absl::OkStatus();
  if (!is_there && elsewhere == store_->address()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "some steps of %s are in %s alone, and there is no store any more: put "
        "its objects back, or open the directory without a remote, which has "
        "what it kept",
        directory_, elsewhere));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "some steps of %s are in %s alone, and cannot be shipped to %s: open it "
      "with that remote and local_keep=\"all\" first, which brings them back "
      "to this disk",
      directory_, elsewhere, store_->address()));
}

// A share that is not mounted is no store that was emptied: what went into the
// folder below it would be gone once it is back, and the two had diverged.
absl::Status Replicator::CheckShipsAreThere() {
  const absl::Status gone =
      CheckNoneWereShipped(note_, store_->address(), directory_);
  if (gone.ok() || ships_again_) return absl::OkStatus();
  if (!take_over_) return gone;
  ships_again_ = true;
  logger_->Log(LogSeverity::kWarning, "remote",
               absl::StrFormat("%s was shipped to %s before, and nothing of it "
                               "is there now: all is shipped again, as "
                               "take_over is set",
                               directory_, store_->address()));
  return absl::OkStatus();
}

absl::Status Replicator::Begin(kv::Database* database, const std::string& uuid,
                               std::uint64_t highest_version, bool is_whole,
                               const Logger* logger) {
  database_ = database;
  logger_ = logger;
  const kv::Call call = kv::Call::Within(kOpenTime);
  CKPTREE_ASSIGN_OR_RETURN(note_, ReadLocalNote(kv_options_, directory_));
  highest_version_ = highest_version;
  if (!note_.fenced.empty()) {
    return Refused(absl::StrFormat(
        "%s goes on no more: %s. Open it without a remote to read it; an empty "
        "directory with this remote fetches the store from there",
        directory_, note_.fenced));
  }
  CKPTREE_RETURN_IF_ERROR(CheckAddress());
  const bool is_there = !uuid_.empty() || lost_name_;
  CKPTREE_RETURN_IF_ERROR(CheckFarAreThere(is_there));
  if (!is_there) CKPTREE_RETURN_IF_ERROR(CheckShipsAreThere());
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options_, directory_, note_));
  for (const std::string& what : fetched_without_) {
    logger_->Log(LogSeverity::kError, "remote",
                 absl::StrFormat("%s; the leaves that stood there are lost in "
                                 "%s, too, and all else is whole: `ckptree "
                                 "verify` names them",
                                 what, directory_));
  }
  if (uuid_.empty()) {
    if (!proven_) {
      CKPTREE_RETURN_IF_ERROR(
          kv::ProveConditionalPut(*store_, HexOf(uuid), call));
    }
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
    return Refused(absl::StrFormat(
        "%s holds the store %s, and %s is the store %s: give it an address of "
        "its own",
        store_->address(), HexOf(uuid_), directory_, HexOf(uuid)));
  }
  {
    const absl::MutexLock lock(&mu_);
    ceiling_ = std::max(ceiling_, highest_version);
  }
  CKPTREE_RETURN_IF_ERROR(database_->BetweenCommits(
      [&](std::uint64_t ordinal) { return TakeOver(ordinal, call); }));
  if (!shipped_elsewhere_.empty()) {
    logger_->Log(
        LogSeverity::kWarning, "remote",
        absl::StrFormat("%s was shipped to %s so far, and goes on in %s",
                        directory_, shipped_elsewhere_, store_->address()));
  }
  const std::stop_token cancelled = remote_trouble_->token();
  if (!is_whole) CKPTREE_RETURN_IF_ERROR(FetchBack(cancelled));
  spares_->Begin(database_, uuid_, logger_, index_->segments());
  attendant_.reset();
  if (cancelled.stop_requested()) {
    // Too late to end a request, and soon enough to end the open.
    return absl::CancelledError(
        absl::StrFormat("opening %s: cancelled", directory_));
  }
  // What nobody waits for goes behind the saves, not beside them.
  if (waited_for_) {
    early_ = std::make_unique<EarlyUploads>(kv_options_, store_.get(), uuid_,
                                            chain_->era());
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    Loop(stop);
    const absl::MutexLock lock(&mu_);
    ended_ = true;
  });
  return absl::OkStatus();
}

void Replicator::KeepOnly(
    FarRows* far_rows, KeptVersionsFn kept,
    std::function<void(absl::FunctionRef<void()> work)> alone) {
  LocalKeep::Context keep;
  keep.database = database_;
  keep.far_rows = far_rows;
  keep.store = store_.get();
  keep.logger = logger_;
  keep.uuid = uuid_;
  keep.grace = grace_;
  keep.kept = std::move(kept);
  keep.alone = std::move(alone);
  keep.look = [this](const kv::Call& call) { return LookAtEnd(call); };
  const absl::MutexLock lock(&mu_);
  keep_given_ = std::make_unique<LocalKeep>(std::move(keep));
  keeps_some_ = true;
}

// Without what stays away the store is what it is without a remote: training
// goes on.
absl::Status Replicator::FetchBack(const std::stop_token& cancelled) {
  CKPTREE_ASSIGN_OR_RETURN(
      const FetchedBack fetched,
      FetchMissing(database_, index_->segments(), uuid_, *store_, cancelled));
  if (fetched.segments > 0) {
    logger_->Log(LogSeverity::kWarning, "remote",
                 absl::StrFormat(
                     "%d segments that were missing in %s, or cut, were "
                     "fetched from %s: %d bytes. Look at that disk",
                     fetched.segments, directory_, address(), fetched.bytes));
  }
  for (const std::string& why : fetched.failed) {
    logger_->Log(LogSeverity::kError, "remote",
                 absl::StrFormat("missing in %s, and not fetched from %s: %s",
                                 directory_, address(), why));
  }
  return absl::OkStatus();
}

// What nothing was ever saved to, and nothing was shipped from, is as good as
// an empty directory.
absl::Status Replicator::Refused(const std::string& why) {
  const auto unused = [this]() -> absl::StatusOr<bool> {
    if (highest_version_ != 0 || !note_.from.empty() || !note_.tracks) {
      return false;
    }
    for (const NotedShips& ships : note_.ships) {
      if (ships.shipped.at != 0 || ships.announced.at != 0) return false;
    }
    // But for what each store is begun with.
    CKPTREE_ASSIGN_OR_RETURN(kv::Iterator rows,
                             database_->Scan(schema::Space::kRecords, "", ""));
    const std::string branch = schema::BranchKey(kMainBranch);
    for (; rows.Valid(); rows.Next()) {
      if (rows.key() != schema::StoreKey() && rows.key() != branch) {
        return false;
      }
    }
    CKPTREE_RETURN_IF_ERROR(rows.status());
    return true;
  }();
  CKPTREE_RETURN_IF_ERROR(unused.status());
  holds_nothing_ = *unused;
  return absl::FailedPreconditionError(why);
}

// Of a directory that is a copy of another one, which it was moved from: it
// goes on in its place where that one shipped nothing that this one lacks.
absl::StatusOr<std::optional<std::uint64_t>> Replicator::PlaceOfMoved(
    const ChainRows& rows, std::uint64_t ordinal, const kv::Call& call) {
  if (note_.from.empty()) return std::nullopt;
  const std::string from = absl::HexStringToBytes(note_.from);
  CKPTREE_ASSIGN_OR_RETURN(
      const NewestShip newest,
      ReadShip(*store_, uuid_, rows.ShippedAt(from), call));
  if (newest.at == 0) return std::nullopt;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::uint64_t> place,
      rows.PlaceOf(from, directory_, store_->address(), ordinal));
  CKPTREE_ASSIGN_OR_RETURN(const bool knows, KnowsShip(note_, store_->address(),
                                                       newest, directory_));
  if (!knows || !place.has_value()) return std::nullopt;
  // A copy of a store that was being written may have a newer note than rows.
  CKPTREE_ASSIGN_OR_RETURN(const bool holds,
                           HoldsShip({*database_, kv_options_, directory_},
                                     *store_, uuid_, newest, call));
  return holds ? place : std::nullopt;
}

absl::Status Replicator::TakeOver(std::uint64_t ordinal, const kv::Call& call) {
  // Where Make() took it over, it is opened once more, now that it is known
  // where the directory stands: one that dies before it ships anything could
  // not be told from a stranger.
  chain_ = std::make_unique<RemoteChain>(store_.get(), uuid_);
  ChainRows rows(uuid_, /*keeps_rows=*/true);
  const std::string local = absl::HexStringToBytes(note_.local);
  std::uint64_t place = 0;
  NewestShip newest;
  std::set<RowName> differ;
  const auto pass = [](const RemoteRow&) { return absl::OkStatus(); };
  bool first = true;
  const auto read = [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(
        std::exchange(first, false)
            ? rows.Read(chain_.get(), *store_, call, pass,
                        [] { return absl::OkStatus(); })
            : rows.ReadOn(chain_.get(), *store_, call, pass));
    if (chain_->ordinal() == 0) {
      if (std::exchange(was_named_, false)) {
        CKPTREE_RETURN_IF_ERROR(CheckNoOther(*store_, uuid_, call));
      }
      CKPTREE_RETURN_IF_ERROR(CheckFarAreThere(/*is_there=*/false));
      CKPTREE_RETURN_IF_ERROR(CheckShipsAreThere());
    }
    const absl::StatusOr<std::optional<std::uint64_t>> place_of =
        rows.PlaceOf(local, directory_, store_->address(), ordinal);
    if (absl::IsFailedPrecondition(place_of.status())) {
      return Refused(std::string(place_of.status().message()));
    }
    CKPTREE_RETURN_IF_ERROR(place_of.status());
    const std::optional<std::uint64_t> known = *place_of;
    CKPTREE_ASSIGN_OR_RETURN(
        newest, ReadShip(*store_, uuid_, rows.ShippedAt(local), call));
    CKPTREE_ASSIGN_OR_RETURN(
        const bool knows,
        KnowsShip(note_, store_->address(), newest, directory_));
    if (!knows) {
      logger_->Log(
          LogSeverity::kWarning, "remote",
          absl::StrFormat("%s ends before what was shipped there from %s: it "
                          "lost some commits, or is an older copy. What it "
                          "lacks is shipped again",
                          store_->address(), directory_));
    }
    place = known.value_or(ordinal);
    if (!known.has_value() || place < ordinal || !knows) {
      CKPTREE_ASSIGN_OR_RETURN(differ, rows.Differences(*database_));
    }
    if (!knows && place == ordinal && !differ.empty()) {
      // Of one history the rest would have been shipped from later commits.
      return absl::FailedPreconditionError(absl::StrFormat(
          "diverged: %s has %d commits of %s, and is another one in %d rows: "
          "it, or the directory, is a copy that went on by itself. An empty "
          "directory with this remote fetches the store from there",
          store_->address(), place, directory_, differ.size()));
    }
    if (known.has_value() || differ.empty()) return absl::OkStatus();
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> moved,
                             PlaceOfMoved(rows, ordinal, call));
    if (moved.has_value()) {
      place = *moved;
      return absl::OkStatus();
    }
    return Refused(absl::StrFormat(
        "%s and %s are the same store and differ in %d rows, and neither is "
        "known to have come from the other: nothing is shipped. Open it "
        "without a remote to read it, and copy what is to stay; an empty "
        "directory with this remote fetches the store from there",
        directory_, store_->address(), differ.size()));
  };
  const auto draft = [&]() -> absl::StatusOr<RemoteCommit> {
    CKPTREE_RETURN_IF_ERROR(read());
    CKPTREE_RETURN_IF_ERROR(CheckUnused(call));
    RemoteCommit open = Draft(RemoteCommit::Shape::kOpen);
    open.from = open.to = place;
    return open;
  };
  CKPTREE_RETURN_IF_ERROR(AskOpen(draft, call));
  CKPTREE_RETURN_IF_ERROR(rows.index().AddWithRows(*chain_->newest(), {}));
  index_ = rows.TakeIndex();
  era_ = chain_->era();
  cleaner_ = std::make_unique<RemoteCleaner>(store_.get(), uuid_, era_, grace_);
  // From here on the chain knows it by its own name.
  if (!note_.from.empty()) note_.ships.clear();
  note_.from.clear();
  note_.tracks = true;
  NotedShip shipped{newest.at, newest.commit.has_value()
                                   ? HexOf(newest.commit->write_id)
                                   : ""};
  note_.ShipsTo(store_->address()) = {
      store_->address(), std::move(shipped), {}};
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options_, directory_, note_));
  const absl::MutexLock lock(&mu_);
  changed_ = std::move(differ);
  noted_ = ordinal;
  shipped_ = place;
  return absl::OkStatus();
}

}  // namespace ckptree::internal
