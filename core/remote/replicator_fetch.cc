// SPDX-License-Identifier: Apache-2.0

// Of a replicator: what is at its address is found, and a directory without a
// store gets that one.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/chain_rows.h"
#include "core/remote/left_stores.h"
#include "core/remote/mirror.h"
#include "core/remote/remote_address.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;

namespace {

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
  CKPTREE_RETURN_IF_ERROR(made->FetchAll(own));
  return made;
}

absl::StatusOr<bool> Replicator::MayFetch(const kv::Call& call) {
  chain_ = std::make_unique<RemoteChain>(store_.get(), uuid_);
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteIndex> index,
                           GoOnFromIndex(chain_.get(), *store_, uuid_, call));
  bool ships = index.has_value() && ShipsAnything(*index);
  CKPTREE_RETURN_IF_ERROR(chain_->ReadOn(
      [&ships](const RemoteCommit& commit) {
        ships |= commit.shape == RemoteCommit::Shape::kShip;
        return absl::OkStatus();
      },
      call));
  if (ships) {
    CKPTREE_RETURN_IF_ERROR(CheckUnused(call));
    return true;
  }
  // Its first writer ended before it shipped anything.
  if (chain_->ordinal() == 0) {
    CKPTREE_RETURN_IF_ERROR(CheckNoOther(*store_, uuid_, call));
    was_named_ = false;
  }
  return false;
}

// Taken over before it is fetched: what is fetched is then the newest, also
// where the writer before is alive. All under the lock of the directory: of
// several processes that open it one fetches, and nobody who waited takes over
// by what was so before.
absl::Status Replicator::FetchAll(const std::string& directory) {
  std::error_code error;
  const bool was_there = std::filesystem::exists(directory, error);
  auto lock = kv::LockForCreation(kv_options_, directory);
  if (absl::IsNotFound(lock.status()) && !was_there) {
    // Who was waited for was refused, and took it away.
    lock = kv::LockForCreation(kv_options_, directory);
  }
  // Who was waited for has fetched it.
  if (absl::IsAlreadyExists(lock.status())) return absl::OkStatus();
  bool took_over = false;
  absl::Status fetched = lock.status();
  if (fetched.ok()) fetched = FetchLocked(directory, &took_over);
  if (absl::IsResourceExhausted(fetched)) {
    fetched = absl::ResourceExhaustedError(absl::StrFormat(
        "%s; an empty directory fetches all of %s first, also with local_keep: "
        "give it a larger disk, or read the store by its address",
        fetched.message(), store_->address()));
  }
  if (!fetched.ok() && lock.ok() && !took_over && !was_there) {
    // What is refused leaves no directory. The lock's file goes last.
    for (const std::string& name :
         {std::string(kv::kRemoteName), std::string(kv::kLockName)}) {
      kv::RemoveFile(kv_options_, kv::Join(directory, name)).IgnoreError();
    }
    std::filesystem::remove(directory, error);
  }
  return fetched;
}

absl::Status Replicator::FetchLocked(const std::string& directory,
                                     bool* took_over) {
  CKPTREE_ASSIGN_OR_RETURN(const LocalNote before,
                           ReadLocalNote(kv_options_, directory));
  note_.local = before.fenced.empty() ? before.local : kv::NewWriteId();
  const kv::Call call = kv::Call::Within(kOpenTime);
  CKPTREE_ASSIGN_OR_RETURN(const bool ships, MayFetch(call));
  if (!ships) {
    chain_.reset();
    return absl::OkStatus();
  }
  CKPTREE_RETURN_IF_ERROR(kv::ProveConditionalPut(*store_, HexOf(uuid_), call));
  // By it the next open here knows a takeover that was killed for its own.
  CKPTREE_RETURN_IF_ERROR(WriteLocalNote(kv_options_, directory, note_));
  const auto draft = [&]() -> absl::StatusOr<RemoteCommit> {
    CKPTREE_RETURN_IF_ERROR(chain_->ReadOn(
        [](const RemoteCommit&) { return absl::OkStatus(); }, call));
    CKPTREE_RETURN_IF_ERROR(CheckUnused(call));
    return Draft(RemoteCommit::Shape::kOpen);
  };
  const absl::Status opened = AskOpen(draft, call);
  // Where nobody knows, it may have been.
  *took_over = !absl::IsFailedPrecondition(opened);
  CKPTREE_RETURN_IF_ERROR(opened);
  return FetchInto(directory);
}

// The directory is locked, and has the note.
absl::Status Replicator::FetchInto(const std::string& directory) {
  CKPTREE_RETURN_IF_ERROR(
      FetchStore(*store_, uuid_, directory, kv_options_, &fetched_without_));
  CKPTREE_RETURN_IF_ERROR(kv::BeginCreation(kv_options_, directory));
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

}  // namespace ckptree::internal
