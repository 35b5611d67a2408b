// SPDX-License-Identifier: Apache-2.0

#include "core/remote/own_ships.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/local_note.h"
#include "core/remote/remote_objects.h"
#include "kv/database.h"
#include "kv/journal_search.h"
#include "kv/object_store.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "schema/spaces.h"
#include "schema/step_record.h"

namespace ckptree::internal {
namespace {

// Commits that are read, one request each, for the last by which it is known.
constexpr int kMostLooksBack = 64;

enum class Held {
  kYes,
  kNo,
  kUnsaid,  // Also an older copy may be as the ship left it.
};

// Keys and values of rows.
using Rows = std::map<std::string, std::string, std::less<>>;

// Whether one of these steps was here, and was removed or saved anew since:
// that it is not here does not tell an older copy from one that went on.
absl::StatusOr<bool> WasHere(const OwnRows& own, const Rows& steps) {
  if (steps.empty()) return false;
  for (const auto& [key, value] : steps) {
    const absl::StatusOr<schema::StepRecord> step =
        schema::DecodeStepRecord(value);
    if (!step.ok()) continue;
    // What waits to be collected has the row of its step.
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> removed,
        own.database.Get(schema::Space::kRecords,
                         schema::RemovedKey(step->version)));
    if (removed == value) return true;
  }
  return kv::JournalHasAnyOf(own.options, own.directory, steps);
}

// Whether the database is as `ship` left it. `later`: the keys of rows that
// newer ones changed, to which those of this one are added.
absl::StatusOr<Held> IsHeld(const OwnRows& own,
                            const schema::RemoteCommit& ship,
                            std::set<std::string, std::less<>>* later) {
  bool gives = !ship.rows_objects.empty();
  bool has_step = false;
  bool holds_other = false;
  bool lacks_removal = false;
  Rows other_steps;  // Not as it has them.
  std::set<std::string, std::less<>> uploaded;
  for (const schema::RemoteSegment& segment : ship.segments) {
    uploaded.insert(schema::SegmentKey(segment.segment));
  }
  for (const schema::RemoteRow& row : ship.rows) {
    if (row.space != schema::Space::kRecords) continue;
    if (!later->insert(row.key).second) continue;
    // A segment row that goes with an upload may be as it was: what was lost
    // there is uploaded again. One that is new comes with the row of its step.
    // That a version waits to be collected is over once it was; its step's row
    // went with the same commit.
    if (row.value.has_value() &&
        (uploaded.contains(row.key) ||
         schema::DecodeVersionKey(schema::Row::kRemoved, row.key))) {
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> here,
                             own.database.Get(row.space, row.key));
    if (!row.value.has_value()) {
      // Where it is not there it may never have come to who was copied before.
      lacks_removal = lacks_removal || here.has_value();
      continue;
    }
    gives = true;
    const bool is_step = schema::DecodeStepKey(row.key).has_value();
    has_step = has_step || is_step;
    if (here != row.value) {
      if (is_step) other_steps[row.key] = *row.value;
      continue;
    }
    // It has the time that the step was made at: no other is like it.
    if (is_step) return Held::kYes;
    // Of a tag or a fork: a commit changes them, so that who was copied before
    // has another value. Settings may be set to what they are.
    if (!schema::DecodeSettingsKey(row.key).has_value()) holds_other = true;
  }
  CKPTREE_ASSIGN_OR_RETURN(const bool was_here, WasHere(own, other_steps));
  if (was_here) return Held::kYes;
  if (gives) return holds_other && !has_step ? Held::kYes : Held::kNo;
  return lacks_removal ? Held::kNo : Held::kUnsaid;
}

}  // namespace

absl::StatusOr<NewestShip> ReadShip(kv::ObjectStore& store,
                                    const std::string& uuid, std::uint64_t at,
                                    const kv::Call& call) {
  NewestShip newest{at, std::nullopt};
  if (at == 0) return newest;
  CKPTREE_ASSIGN_OR_RETURN(newest.commit,
                           GetRemoteCommit(store, uuid, at, call));
  return newest;
}

absl::StatusOr<bool> HoldsShip(const OwnRows& own, kv::ObjectStore& store,
                               const std::string& uuid, NewestShip newest,
                               const kv::Call& call) {
  if (!newest.commit.has_value()) return false;
  const std::string local = newest.commit->local;
  std::set<std::string, std::less<>> later;
  for (int looks = 0; looks < kMostLooksBack; ++looks) {
    if (!newest.commit.has_value()) return false;
    if (newest.commit->shape == schema::RemoteCommit::Shape::kShip) {
      if (newest.commit->local != local) return false;
      CKPTREE_ASSIGN_OR_RETURN(const Held held,
                               IsHeld(own, *newest.commit, &later));
      if (held != Held::kUnsaid) return held == Held::kYes;
    }
    CKPTREE_ASSIGN_OR_RETURN(newest,
                             ReadShip(store, uuid, newest.at - 1, call));
  }
  return false;
}

absl::StatusOr<bool> KnowsShip(const LocalNote& note,
                               const std::string& address,
                               const NewestShip& newest,
                               const std::string& directory) {
  if (newest.at == 0 || !note.tracks) return true;
  const std::string id =
      newest.commit.has_value() ? HexOf(newest.commit->write_id) : "";
  // The address may be another one by now: a bucket that was moved.
  std::uint64_t newest_noted = 0;
  for (const NotedShips& ships : note.ships) {
    for (const NotedShip* one : {&ships.shipped, &ships.announced}) {
      // Of one that is gone nothing but its ordinal is left.
      if (one->at == newest.at &&
          (one->write_id == id || !newest.commit.has_value())) {
        return true;
      }
    }
    newest_noted = std::max(newest_noted, ships.shipped.at);
  }
  if (const NotedShips* here = note.FindShipsTo(address)) {
    newest_noted = here->shipped.at;
  }
  if (newest.at < newest_noted) return false;
  return absl::FailedPreconditionError(absl::StrFormat(
      "diverged: %s was put back from an older copy of itself: commit %d in %s "
      "was shipped from it, and it knows of none behind commit %d. Nothing "
      "is lost: open it without a remote to read it, and copy what is to stay; "
      "an empty directory with this remote fetches the store from there",
      directory, newest.at, address, newest_noted));
}

absl::Status CheckNoneWereShipped(const LocalNote& note,
                                  const std::string& address,
                                  const std::string& directory) {
  const NotedShips* const here = note.FindShipsTo(address);
  if (here == nullptr) return absl::OkStatus();
  // Who closes has not heard of the newest by a note of its own.
  const std::uint64_t up_to = std::max(here->shipped.at, here->announced.at);
  if (up_to == 0) return absl::OkStatus();
  constexpr std::string_view kFolder = "file://";
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s was shipped to %s up to commit %d there, and nothing of it is there "
      "now: %s Nothing is put there; once it is back open the directory again. "
      "Where it was emptied on purpose an open with take_over set ships all "
      "again",
      directory, address, up_to,
      address.starts_with(kFolder)
          ? "is its file system mounted?"
          : "was it deleted, or is that another server?"));
}

}  // namespace ckptree::internal
