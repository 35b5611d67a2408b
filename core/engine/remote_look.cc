// SPDX-License-Identifier: Apache-2.0

#include "core/engine/remote_look.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/remote/left_stores.h"
#include "core/remote/local_note.h"
#include "core/remote/own_ships.h"
#include "core/remote/remote_objects.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"

namespace ckptree::internal {
namespace {

// The newest ship of the directory that is there. Nothing: it cannot be told
// from its note.
absl::StatusOr<std::optional<NewestShip>> NewestOf(kv::ObjectStore& remote,
                                                   const std::string& uuid,
                                                   const LocalNote& note,
                                                   const kv::Call& call) {
  const NotedShips* const ships = note.FindShipsTo(remote.address());
  if (ships == nullptr || !note.tracks) return std::nullopt;
  // What was announced may be there by now.
  for (const NotedShip& ship : {ships->announced, ships->shipped}) {
    CKPTREE_ASSIGN_OR_RETURN(const NewestShip found,
                             ReadShip(remote, uuid, ship.at, call));
    if (found.commit.has_value() &&
        HexOf(found.commit->write_id) == ship.write_id) {
      return found;
    }
  }
  return std::nullopt;
}

// Who shipped behind `newest` from another directory; empty: nobody. Of very
// many opens that shipped nothing the first are looked at.
absl::StatusOr<std::string> WentOnBehind(kv::ObjectStore& remote,
                                         const std::string& uuid,
                                         const NewestShip& newest,
                                         const kv::Call& call) {
  constexpr std::uint64_t kMostLooks = 256;
  for (std::uint64_t at = newest.at + 1; at <= newest.at + kMostLooks; ++at) {
    CKPTREE_ASSIGN_OR_RETURN(const NewestShip next,
                             ReadShip(remote, uuid, at, call));
    if (!next.commit.has_value()) break;
    if (next.commit->shape == schema::RemoteCommit::Shape::kShip &&
        next.commit->local != newest.commit->local) {
      return absl::StrFormat("host %s, pid %d", next.commit->host,
                             next.commit->pid);
    }
  }
  return "";
}

absl::Status Reads(kv::ObjectStore& remote, const std::string& uuid,
                   const std::string& directory, const LocalNote& note,
                   std::vector<std::string>* strangers, const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(const AtAddress found, LookAtAddress(remote, call));
  if (!found.left.empty()) return NameIsGone(remote.address(), found);
  if (!found.store.has_value()) {
    CKPTREE_RETURN_IF_ERROR(
        CheckNoneWereShipped(note, remote.address(), directory));
    return absl::NotFoundError(
        "there is no store: is that its address, and its file system mounted?");
  }
  if (found.store->uuid != uuid) {
    return absl::FailedPreconditionError(
        absl::StrFormat("it holds the store %s, and the directory is %s",
                        HexOf(found.store->uuid), HexOf(uuid)));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeftStore> stores,
                           ListStores(remote, call));
  *strangers = StrangersTo(uuid, stores);
  const bool has_commits =
      std::ranges::any_of(stores, [&uuid](const LeftStore& one) {
        return one.commits && one.uuid == HexOf(uuid);
      });
  if (has_commits) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(CheckNoOther(remote, uuid, call));
  return CheckNoneWereShipped(note, remote.address(), directory);
}

}  // namespace

RemoteLook LookAtRemote(const Store& store, absl::Duration patience) {
  Engine& engine = StoreEngine::Of(store);
  RemoteLook look;
  const absl::StatusOr<std::optional<LocalNote>> read = engine.ReadShipNote();
  look.reads = read.status();
  if (!read.ok() || !read->has_value()) return look;
  const LocalNote& note = **read;
  look.address = note.ships.back().address;
  const kv::Call reading = kv::Call::Within(patience);
  absl::StatusOr<std::unique_ptr<kv::ObjectStore>> remote =
      kv::OpenObjectStore(look.address, {}, reading);
  look.reads = remote.status();
  if (!look.reads.ok()) return look;
  const std::string& uuid = engine.store_record().uuid;
  look.reads =
      Reads(**remote, uuid, engine.directory(), note, &look.strangers, reading);
  if (!look.reads.ok()) return look;
  const auto shipped = NewestOf(**remote, uuid, note, reading);
  const std::uint64_t newest = engine.database().newest_ordinal();
  if (shipped.ok() && shipped->has_value()) {
    look.behind = newest - std::min(newest, (**shipped).commit->to);
    look.went_on =
        WentOnBehind(**remote, uuid, **shipped, reading).value_or("");
  }
  look.writes = kv::ProveConditionalPut(**remote, HexOf(uuid),
                                        kv::Call::Within(patience));
  return look;
}

}  // namespace ckptree::internal
