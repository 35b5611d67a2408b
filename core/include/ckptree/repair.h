// SPDX-License-Identifier: Apache-2.0

// Making a damaged store usable again, in its place.
//
//   // First what would be done, then that and nothing else.
//   absl::StatusOr<ckptree::RepairReport> plan = ckptree::Repair("/runs/lm");
//   absl::StatusOr<ckptree::RepairReport> done = ckptree::Repair(
//       "/runs/lm", {.execute = true, .only_if = plan->id});

#ifndef CKPTREE_REPAIR_H_
#define CKPTREE_REPAIR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/recover.h"

namespace ckptree {

struct CKPTREE_EXPORT RepairReport {
  enum class Action {
    kNothing,  // The store is whole.
    // Nothing is lost: one copy of what the store keeps twice is damaged, and
    // is made anew from the other. An open for writing does the same.
    kMend,
    // All that can be read is saved into a new store, which takes the place of
    // the damaged one; that is kept, under another name.
    kRebuild,
    // A repair was interrupted between its last steps: they are done.
    kFinish,
  };
  Action action = Action::kNothing;
  // False: nothing was changed.
  bool done = false;

  std::vector<std::string> problems = {};  // What is wrong, one line each.
  // What there will be of each step, and which leaves are lost; by branch
  // and number.
  std::vector<RecoveredStep> steps = {};
  // What is lost or may be lost beside leaves, one line each.
  std::vector<std::string> losses = {};
  // What else there is to know.
  std::vector<std::string> notes = {};
  // Why what is in an object store alone was not looked at; empty: all was.
  std::string not_looked_at = {};
  // Why it cannot be repaired here, with what to do; empty: it can.
  std::string hindrance = {};
  // Where the damaged store is kept (kRebuild and kFinish, once done).
  std::string damaged = {};
  // Names the store as it is, and the action: see RepairOptions::only_if.
  std::string id = {};

  // Nothing is lost.
  bool complete() const;
  std::uint64_t steps_kept() const;
  // The highest step of the main branch of which nothing is lost.
  std::optional<std::int64_t> newest_whole_step() const;
};

struct RepairOptions {
  // False: says what is wrong and what would be done, and changes nothing.
  bool execute = false;

  // Where set: the `id` of an earlier report. Repairs only the store as it was
  // then, and only in that way; kAborted otherwise.
  std::string only_if = {};

  // Asked before anything of the store is changed, with the whole report; false
  // leaves everything as it is. Null: true.
  std::function<bool(const RepairReport& plan)> confirm = {};

  // How long to wait for a process that has the store open for writing.
  absl::Duration lock_wait = absl::ZeroDuration();

  // As for Recover.
  std::function<bool()> cancelled = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
};

// Finds what is wrong with a store, reading all of it, and mends that in the
// gentlest way there is. While it works nobody can write to the store; readers
// are best kept away. Killed at any moment, it leaves the store as it was, or
// repaired, or so that the next Repair() ends what it began.
//
// A rebuilt store has another uuid; its versions are above those of the damaged
// one, which stays beside it as `directory`.damaged. What Recover does not
// carry over is lost to it, too. It is made in the folder
// `directory`.repairing.
//
// kNotFound: there is no store. kUnavailable: a live writer, or another repair.
// kFailedPrecondition: a newer engine's store, or links in it; nothing is wrong
// with it. kDataLoss: too little is left of it; not a step could be kept.
// kAborted: somebody changed the store, or see only_if. kCancelled. After any
// of them the store is as it was.
CKPTREE_EXPORT absl::StatusOr<RepairReport> Repair(
    const std::string& directory, const RepairOptions& options = {});

}  // namespace ckptree

#endif  // CKPTREE_REPAIR_H_
