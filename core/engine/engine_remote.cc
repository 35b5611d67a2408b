// SPDX-License-Identifier: Apache-2.0

// Of an engine: what has to do with an object store.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/process/close_at_exit.h"
#include "core/remote/address_cache.h"
#include "core/remote/far_rows.h"
#include "core/remote/index_check.h"
#include "core/remote/left_stores.h"
#include "core/remote/local_keep.h"
#include "core/remote/local_note.h"
#include "core/remote/remote_objects.h"
#include "core/verify/unnamed_versions.h"
#include "core/version/open_check.h"
#include "kv/object_store.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"

namespace ckptree::internal {
namespace {

// Of all requests for indexes; each has a deadline, too.
constexpr absl::Duration kTimeOfCheck = absl::Minutes(30);
// Of a status: the directory has no store any more, and may get another.
constexpr char kMadeRoom[] = "ckptree/made-room";

}  // namespace

kv::Options Engine::PlainKvOptions(const EngineOptions& options) {
  kv::Options kv_options;
  kv_options.file_system = options.file_system;
  kv_options.shared_folder = options.shared_folder;
  kv_options.lock_wait_ms = absl::ToInt64Milliseconds(options.store.lock_wait);
  kv_options.brief = options.store.brief;
  kv_options.segment_space = SpaceOfSegment;
  kv_options.index_is_whole = AllSegmentsAreThere;
  kv_options.permissions = options.store.permissions;
  kv_options.far = options.far;
  kv_options.all_far = options.far != nullptr;
  return kv_options;
}

std::shared_ptr<FarRows> Engine::NewFarRows(const StoreOptions& options) {
  return std::make_shared<FarRows>(
      [](const std::string& address, const kv::Call& call)
          -> absl::StatusOr<std::unique_ptr<kv::ObjectStore>> {
        // A share that is not mounted is no store that has lost all.
        constexpr std::string_view kFolder = "file://";
        std::error_code error;
        if (address.starts_with(kFolder) &&
            !std::filesystem::exists(address.substr(kFolder.size()), error)) {
          return absl::UnavailableError(
              "there is no such folder: is its file system mounted?");
        }
        return kv::OpenObjectStore(address, {}, call);
      },
      FarReader{options.log, options.cancelled});
}

std::uint64_t Engine::FarBytes() {
  std::uint64_t bytes = 0;
  if (!address_.empty()) return bytes;
  for (const kv::FarSegmentPtr& segment : far_rows_->List()) {
    bytes += segment->bytes;
  }
  return bytes;
}

namespace {

// Nothing: it has shipped nothing, or what it was copied from did.
absl::StatusOr<std::optional<LocalNote>> ShipNoteOf(
    const std::string& directory, const kv::Options& options) {
  CKPTREE_ASSIGN_OR_RETURN(LocalNote note, ReadLocalNote(options, directory));
  if (!note.from.empty() || note.ships.empty()) return std::nullopt;
  return std::optional<LocalNote>(std::move(note));
}

}  // namespace

absl::StatusOr<std::optional<LocalNote>> Engine::ReadShipNote() const {
  if (!address_.empty()) return std::nullopt;
  return ShipNoteOf(directory_, kv_options_);
}

std::string Engine::ShippedFrom(const std::string& directory,
                                const kv::Options& options) {
  const auto note = ShipNoteOf(directory, options);
  return note.ok() && note->has_value() ? (*note)->ships.back().address : "";
}

std::string Engine::ShippedTo() const {
  return address_.empty() ? ShippedFrom(directory_, kv_options_) : "";
}

absl::Status Engine::ForgetFarThatAreHere() {
  CKPTREE_ASSIGN_OR_RETURN(const int forgotten,
                           internal::ForgetFarThatAreHere(database_.get()));
  if (forgotten > 0) {
    logger_.Log(LogSeverity::kInfo, "open",
                absl::StrFormat("%d segments that were about to leave the disk "
                                "are still here, and stay",
                                forgotten));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Replicator>> Engine::Connect(
    const std::string& directory, const EngineOptions& options, bool fetch) {
  if (options.store.remote.empty()) return nullptr;
  return Replicator::Make(directory, options.store, PlainKvOptions(options),
                          fetch);
}

// The lock is held: what nothing was saved to now stays so.
absl::Status Engine::BeginShipping(std::uint64_t highest_version) {
  // What is known by now is what the open found of its segments.
  const bool is_whole = WarningsSoFar().empty();
  absl::Status begun = replicator_->Begin(database_.get(), store_.uuid,
                                          highest_version, is_whole, &logger_);
  if (begun.ok() || !replicator_->holds_nothing()) return begun;
  CKPTREE_RETURN_IF_ERROR(
      kv::RemoveParts(kv_options_, kv::AbsolutePath(directory_)));
  logger_.Log(LogSeverity::kWarning, "remote",
              absl::StrFormat("%s; %s had no step, and what is in %s takes its "
                              "place",
                              std::string(begun.message()), directory_,
                              options_.remote));
  begun.SetPayload(kMadeRoom, absl::Cord());
  return begun;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Started(
    std::shared_ptr<Engine> engine, std::unique_ptr<kv::Database> database,
    const kv::Options& kv_options) {
  absl::Status started = engine->Start(std::move(database), kv_options);
  if (started.ok()) return engine;
  // What closing says of a store that is not there any more is no news.
  if (MadeRoom(started)) engine->Close().IgnoreError();
  return started;
}

void Engine::BeginKeeping() {
  if (!options_.local_keep.has_value()) return;
  replicator_->KeepOnly(
      far_rows_.get(),
      [this] {
        absl::StatusOr<KeptVersions> kept = absl::UnknownError("");
        // A budget is of what is there.
        RunPaused([&] { kept = retention_->KeptOnDisk(*options_.local_keep); });
        return kept;
      },
      [this](absl::FunctionRef<void()> work) { RunPaused(work); });
}

std::function<bool()> Engine::HadEnough() const {
  if (patience_ == absl::InfiniteDuration()) return options_.cancelled;
  return
      [trouble = trouble_, patience = patience_, asked = options_.cancelled] {
        return trouble->silent() >= patience || (asked && asked());
      };
}

bool Engine::MadeRoom(const absl::Status& status) {
  return status.GetPayload(kMadeRoom).has_value();
}

void Engine::ShipTo(std::shared_ptr<Replicator> remote,
                    kv::Options* kv_options) {
  replicator_ = std::move(remote);
  if (replicator_ == nullptr) return;
  kv_options->spare = replicator_->spares();
  kv_options->on_commit = [to = replicator_.get()](
                              std::uint64_t ordinal, std::uint64_t version,
                              const kv::WriteBatch& batch) {
    to->Note(ordinal, version, batch);
  };
}

absl::Status Engine::LookAgainFor(const std::vector<std::string>& damage) {
  if (replicator_ == nullptr || damage.empty()) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(std::vector<std::string> left,
                           SegmentDamage(*database_));
  const absl::MutexLock lock(&mu_);
  for (const std::string& was : damage) std::erase(warnings_, was);
  warnings_.insert(warnings_.begin(), left.begin(), left.end());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenByAddress(
    const std::string& address, const EngineOptions& options) {
  CKPTREE_RETURN_IF_ERROR(CheckMayOpen());
  const auto trouble =
      std::make_shared<RemoteTrouble>(address, options.store.log);
  const RemoteAttendant attendant(trouble, options.store.cancelled);
  CacheTurn turn;
  CKPTREE_ASSIGN_OR_RETURN(
      CachedStore cached,
      CacheOf(address, PlainKvOptions(options), trouble,
              {options.store.log, options.store.cancelled}, &turn));
  EngineOptions there = options;
  there.far = cached.segments;
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                           Open(cached.directory, there));
  engine->address_ = cached.store->address();
  engine->trouble_ = trouble;
  engine->cached_ = std::move(cached);
  return engine;
}

absl::Status Engine::CheckObjectsThere(bool all,
                                       std::vector<std::string>* damage) const {
  if (address_.empty()) return absl::OkStatus();
  const RemoteAttendant attendant(trouble_, HadEnough());
  return CheckObjects(cached_, all, damage);
}

absl::Status Engine::CheckIndexesThere(std::vector<std::string>* found) const {
  if (address_.empty()) return absl::OkStatus();
  const RemoteAttendant attendant(trouble_, HadEnough());
  const kv::Call call = kv::Call::Within(kTimeOfCheck);
  CKPTREE_RETURN_IF_ERROR(
      CheckIndexes(*cached_.store, cached_.uuid, call, found));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeftStore> stores,
                           ListStores(*cached_.store, call));
  for (const std::string& other : StrangersTo(cached_.uuid, stores)) {
    found->push_back(absl::StrFormat(
        "objects of another store, %s, are in %s beside those of this one, "
        "%s; no step is hurt",
        other, cached_.store->address(), HexOf(cached_.uuid)));
  }
  return absl::OkStatus();
}

bool Engine::MayReadRemote() const {
  return database_ != nullptr && database_->any_far();
}

}  // namespace ckptree::internal
