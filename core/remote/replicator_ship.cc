// SPDX-License-Identifier: Apache-2.0

// Of a replicator: one commit, from what changed to where it is there.

#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/remote/local_note.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "core/remote/row_index.h"
#include "kv/database.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteCommit;
using schema::RemoteRow;
using schema::Space;

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// Saves go on in a store that is damaged, and so does shipping where it can.
absl::Status DamagedHere(absl::Status status) {
  return absl::IsDataLoss(status) ? absl::UnavailableError(status.message())
                                  : status;
}

}  // namespace

RemoteCommit Replicator::Draft(RemoteCommit::Shape shape) const {
  RemoteCommit draft;
  draft.shape = shape;
  draft.local = absl::HexStringToBytes(note_.local);
  draft.host = HostName();
  draft.pid = static_cast<std::uint64_t>(getpid());
  return draft;
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
            if (segment.has_value() &&
                (!index_->segments().contains(name.second) ||
                 lost_.contains(name.second))) {
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

absl::Status Replicator::Announce(RemoteCommit* ship) {
  ship->write_id = NewRemoteId();
  note_.ShipsTo(address()).announced = {chain_->ordinal() + 1,
                                        HexOf(ship->write_id)};
  return WriteLocalNote(kv_options_, directory_, note_);
}

absl::Status Replicator::AskFor(const std::stop_token& stop) {
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
  CKPTREE_RETURN_IF_ERROR(DamagedHere(Upload(*asked_, stop, &commit)));
  CKPTREE_RETURN_IF_ERROR(Announce(&commit));
  asked_->commit = commit;
  asked_->commit.rows.clear();
  // From now on: what was uploaded had times of its own.
  return chain_->Append(std::move(commit),
                        kv::Call::Within(kRequestTime, stop));
}

// What is tried next is of the newest commit.
void Replicator::TakeBack() {
  if (!asked_.has_value()) return;
  const absl::MutexLock lock(&mu_);
  changed_.merge(asked_->names);
  asked_.reset();
}

absl::Status Replicator::NoteShipped(const RemoteCommit& commit,
                                     const std::vector<RemoteRow>& rows) {
  NotedShip shipped{commit.ordinal, HexOf(commit.write_id)};
  NotedShips& noted = note_.ShipsTo(address());
  noted.shipped = std::move(shipped);
  noted.announced = {};
  const absl::Status added = index_->AddWithRows(commit, rows);
  spares_->Follow(index_->segments(), rows);
  for (const schema::RemoteSegment& uploaded : commit.segments) {
    const std::string key = schema::SegmentKey(uploaded.segment);
    lost_.erase(key);
    const absl::MutexLock lock(&mu_);
    uploaded_.erase(key);
  }
  if (early_ != nullptr) early_->Forget(commit.ceiling);
  return added;
}

absl::Status Replicator::TakeOwn(const RemoteCommit& commit,
                                 const kv::Call& call) {
  // Another's ends this writer.
  if (commit.era != chain_->era() ||
      commit.shape != RemoteCommit::Shape::kShip) {
    return absl::OkStatus();
  }
  std::vector<RemoteRow> rows;
  CKPTREE_RETURN_IF_ERROR(
      ForEachRow(commit, *store_, call, [&](const RemoteRow& row) {
        rows.push_back(row);
        return absl::OkStatus();
      }));
  CKPTREE_RETURN_IF_ERROR(NoteShipped(commit, rows));
  Shipped(commit.to);
  return absl::OkStatus();
}

absl::Status Replicator::ReadOn(const kv::Call& call) {
  return chain_->ReadOn(
      [&](const RemoteCommit& commit) { return TakeOwn(commit, call); }, call);
}

absl::Status Replicator::ShipOnce(const std::stop_token& stop) {
  // Something was thrown before it was asked for.
  if (asked_.has_value() && !asked_->is_there && !chain_->pending()) TakeBack();
  if (!asked_.has_value() || !asked_->is_there) {
    // Rule 4: nothing else is asked for before it is known what became of it.
    const absl::Status status =
        asked_.has_value()
            ? chain_->Settle(kv::Call::Within(kRequestTime, stop))
            : AskFor(stop);
    if (!status.ok()) {
      if (chain_->pending()) return status;
      TakeBack();
      if (!absl::IsAlreadyExists(status)) return status;
      // It is read with its rows, and what changed since goes behind it.
      return ReadOn(kv::Call::Within(kRequestTime, stop));
    }
    asked_->is_there = true;
  }
  asked_->commit.ordinal = chain_->ordinal();
  asked_->commit.era = chain_->era();
  const absl::Status added = NoteShipped(asked_->commit, asked_->rows);
  // Also those that are lost here, too, and were left out.
  for (const schema::SegmentKeyFields& segment : asked_->segments) {
    lost_.erase(schema::SegmentKey(segment));
  }
  // Nobody hears of it before all of that is done.
  Shipped(asked_->to);
  asked_.reset();
  CKPTREE_RETURN_IF_ERROR(added);
  CKPTREE_RETURN_IF_ERROR(WriteIndex(/*any=*/false, stop));
  keep_due_ = local_keep_ != nullptr;
  Clean(stop);
  if (keep_due_ && kv::MonotonicNow() >= local_keep_->next()) LetGo(stop);
  return absl::OkStatus();
}

void Replicator::Shipped(std::uint64_t to) {
  const absl::MutexLock lock(&mu_);
  shipped_ = to;
  // At one with it, so that who waits for both misses neither. What this open
  // alone put there needs no look.
  looking_ = !cleaner_->looked() && era_ > 1;
  trouble_ = absl::OkStatus();
  std::erase_if(ordinal_of_,
                [to](const auto& known) { return known.second <= to; });
}

}  // namespace ckptree::internal
