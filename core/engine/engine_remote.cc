// SPDX-License-Identifier: Apache-2.0

// Of an engine: what has to do with an object store.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/remote/address_cache.h"
#include "core/remote/index_check.h"
#include "core/verify/unnamed_versions.h"
#include "core/version/open_check.h"

namespace ckptree::internal {
namespace {

// Of all requests for indexes; each has a deadline, too.
constexpr absl::Duration kTimeOfCheck = absl::Minutes(30);

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
  return kv_options;
}

absl::StatusOr<std::shared_ptr<Replicator>> Engine::Connect(
    const std::string& directory, const EngineOptions& options, bool fetch) {
  if (options.store.remote.empty()) return nullptr;
  return Replicator::Make(directory, options.store, PlainKvOptions(options),
                          fetch);
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
  const auto trouble =
      std::make_shared<RemoteTrouble>(address, options.store.log);
  const RemoteAttendant attendant(trouble, options.store.cancelled);
  CacheTurn turn;
  CKPTREE_ASSIGN_OR_RETURN(
      CachedStore cached,
      CacheOf(address, PlainKvOptions(options), trouble, &turn));
  EngineOptions there = options;
  there.far = cached.segments;
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                           Open(cached.directory, there));
  engine->address_ = address;
  engine->trouble_ = trouble;
  engine->cached_ = std::move(cached);
  return engine;
}

absl::Status Engine::CheckObjectsThere(bool all,
                                       std::vector<std::string>* damage) const {
  return address_.empty() ? absl::OkStatus()
                          : CheckObjects(cached_, all, damage);
}

absl::Status Engine::CheckIndexesThere(std::vector<std::string>* found) const {
  return address_.empty() ? absl::OkStatus()
                          : CheckIndexes(*cached_.store, cached_.uuid,
                                         kv::Call::Within(kTimeOfCheck), found);
}

}  // namespace ckptree::internal
