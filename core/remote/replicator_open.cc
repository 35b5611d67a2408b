// SPDX-License-Identifier: Apache-2.0

// Of a replicator: how a store is found, taken over and gone on with.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
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
#include "core/remote/mirror.h"
#include "core/remote/own_ships.h"
#include "core/remote/remote_address.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "core/version/catalog.h"
#include "kv/conditional_put.h"
#include "kv/iterator.h"
#include "kv/monotonic.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteRow;

namespace {

// Of an open; without an index all commits are read.
constexpr absl::Duration kOpenTime = absl::Minutes(30);
// Who has not closed the store, and wrote to it since, may still be alive.
constexpr absl::Duration kMayBeAlive = absl::Minutes(10);
// Of an open, each behind another's commit.
constexpr int kOpensBeforeClaim = 8;

// Who loses the directory would lose its remote with it.
absl::Status CheckApart(const std::string& directory,
                        const std::string& remote) {
  constexpr std::string_view kFolder = "file://";
  if (!remote.starts_with(kFolder)) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path own =
      std::filesystem::weakly_canonical(kv::AbsolutePath(directory), error);
  const std::filesystem::path far =
      std::filesystem::weakly_canonical(remote.substr(kFolder.size()), error);
  // A path that ends in a slash has an empty last part.
  const auto end = own.has_filename() ? own.end() : std::prev(own.end());
  if (std::mismatch(own.begin(), end, far.begin(), far.end()).first != end) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "the remote %s is in the directory of its own store, %s, and is lost "
      "with it: give it a folder elsewhere, best on another disk",
      remote, directory));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Replicator>> Replicator::Make(
    const std::string& directory, const StoreOptions& options,
    const kv::Options& kv_options, bool fetch) {
  CKPTREE_RETURN_IF_ERROR(CheckApart(directory, options.remote));
  const std::string above =
      std::filesystem::path(kv::AbsolutePath(directory)).parent_path().string();
  if (std::error_code error; !std::filesystem::exists(above, error)) {
    // Before anything is said there of a store that cannot be made.
    return absl::NotFoundError(absl::StrFormat(
        "no store can be made in %s: there is no folder %s; make that first",
        directory, above));
  }
  const kv::Call call = kv::Call::Within(kRequestTime);
  const auto trouble =
      std::make_shared<RemoteTrouble>(options.remote, options.log);
  auto attendant =
      std::make_unique<RemoteAttendant>(trouble, options.cancelled);
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<kv::ObjectStore> store,
                           OpenAttended(options.remote, trouble, call));
  std::shared_ptr<Replicator> made(new Replicator(std::move(store), directory,
                                                  options, kv_options, trouble,
                                                  std::move(attendant)));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                           made->FindStore(call));
  if (there.has_value()) made->uuid_ = there->uuid;
  made->was_named_ = there.has_value();
  if (!fetch && !there.has_value()) {
    // Before a directory is made that could not be shipped.
    CKPTREE_RETURN_IF_ERROR(kv::ProveConditionalPut(
        *made->store_, "", kv::Call::Within(kOpenTime)));
    made->proven_ = true;
  }
  if (!fetch || !there.has_value()) return made;
  const std::string own = kv::AbsolutePath(directory);
  const absl::Status lacks = kv::MayCreate(kv_options, own);
  if (absl::IsAlreadyExists(lacks)) return made;
  CKPTREE_RETURN_IF_ERROR(lacks);
  CKPTREE_RETURN_IF_ERROR(CheckHoldsNoObjects(own));
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
    if (made->chain_->ordinal() == 0) {
      CKPTREE_RETURN_IF_ERROR(
          CheckNoOther(*made->store_, made->uuid_, opening));
      made->was_named_ = false;
    }
    // Its first writer ended before it shipped anything.
    made->chain_.reset();
    return made;
  }
  CKPTREE_RETURN_IF_ERROR(made->CheckUnused(opening));
  CKPTREE_RETURN_IF_ERROR(
      kv::ProveConditionalPut(*made->store_, HexOf(made->uuid_), opening));
  const auto draft = [&]() -> absl::StatusOr<RemoteCommit> {
    CKPTREE_RETURN_IF_ERROR(read_on());
    return made->Draft(RemoteCommit::Shape::kOpen);
  };
  const auto told_of_room = [&made](absl::Status status) {
    if (!absl::IsResourceExhausted(status)) return status;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s; an empty directory fetches all of %s first, also with local_keep: "
        "give it a larger disk, or read the store by its address",
        status.message(), made->store_->address()));
  };
  // Before it is taken over: one that is being fetched here is not fenced.
  const auto lock = kv::LockForCreation(kv_options, own);
  // Who was waited for has fetched it.
  if (absl::IsAlreadyExists(lock.status())) {
    made->chain_.reset();
    return made;
  }
  CKPTREE_RETURN_IF_ERROR(told_of_room(lock.status()));
  CKPTREE_RETURN_IF_ERROR(made->AskOpen(draft, opening));
  CKPTREE_RETURN_IF_ERROR(told_of_room(made->FetchInto(own)));
  return made;
}

// The directory is locked.
absl::Status Replicator::FetchInto(const std::string& directory) {
  CKPTREE_RETURN_IF_ERROR(
      FetchStore(*store_, uuid_, directory, kv_options_, &fetched_without_));
  CKPTREE_RETURN_IF_ERROR(kv::BeginCreation(kv_options_, directory));
  // It names the directory that it lies in.
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options_, directory, note_));
  return kv::TakeFetched(kv_options_, directory);
}

// A directory of the store that is left there puts its name back in Begin().
absl::StatusOr<std::optional<schema::RemoteStore>> Replicator::FindStore(
    const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(const AtAddress found, LookAtAddress(*store_, call));
  if (found.store.has_value() || found.left.empty()) return found.store;
  const auto own = kv::UuidOfStore(kv_options_, directory_);
  if (own.has_value() &&
      found.Has(HexOf(std::string(own->begin(), own->end())))) {
    lost_name_ = true;
    return std::nullopt;
  }
  const LeftStore* const left = found.TheOne();
  if (left == nullptr || !take_over_) {
    return NameIsGone(store_->address(), found);
  }
  CKPTREE_RETURN_IF_ERROR(kv::ProveConditionalPut(*store_, left->uuid, call));
  CKPTREE_ASSIGN_OR_RETURN(const bool put, PutNameBack(*store_, found, call));
  if (put) {
    Logger(log_).Log(
        LogSeverity::kWarning, "remote",
        absl::StrFormat("%s had lost the object '%s'; the only store whose "
                        "objects are there is %s, and it is named again",
                        store_->address(), kRemoteStoreName, left->uuid));
  }
  return FindRemoteStore(*store_, call);
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
    CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found,
                             kv::LookAt(kv::AbsolutePath(directory_)));
    return found.foreign.empty();
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
  CKPTREE_ASSIGN_OR_RETURN(const bool holds, HoldsStepOf(*database_, newest));
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
        "known to have come from the other: nothing is shipped. An empty "
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
