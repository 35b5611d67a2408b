// SPDX-License-Identifier: Apache-2.0

// Saving what can be read of a store that is damaged.
//
// Recover() makes a new store beside the damaged one, and is for whoever wants
// to look before anything is replaced. Repair() (repair.h) does the same in
// place, or less where less is enough. `ckptree verify` says what is wrong.
//
//   absl::StatusOr<ckptree::RecoverReport> report =
//       ckptree::Recover("/runs/lm", "/runs/lm.recovered");
//   if (report.ok() && !report->complete()) Show(report->losses);

#ifndef CKPTREE_RECOVER_H_
#define CKPTREE_RECOVER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/export.h"

namespace ckptree {

// A leaf, or something else of a step, that was left out, and why.
struct LostLeaf {
  std::string name = {};
  std::string why = {};
};

// What became of one step.
struct RecoveredStep {
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;
  bool saved = false;
  std::string why = {};  // Where it was not saved as a whole.
  std::uint64_t leaves_saved = 0;
  std::uint64_t leaves_lost = 0;
  std::uint64_t bytes = 0;  // Of the values that were saved.
  std::vector<LostLeaf> lost = {};
};

struct CKPTREE_EXPORT RecoverReport {
  std::vector<RecoveredStep> steps = {};  // In the order they were saved in.
  // What is lost or may be lost beside leaves, one line each.
  std::vector<std::string> losses = {};
  // What was wrong and cost nothing.
  std::vector<std::string> notes = {};
  // False where not a single step could be saved: there is no new store then.
  bool made = false;

  // Nothing was lost.
  bool complete() const;
  std::uint64_t steps_saved() const;
};

struct RecoverOptions {
  // Checked between leaves; true stops with kCancelled.
  std::function<bool()> cancelled = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
  // The arrays of a step that are kept in memory until it is saved; larger
  // steps are read twice.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
};

// Saves every step of `from` that can be read, without the leaves that cannot,
// into the new store `to`: step number, tree, values, metrics, note, custom
// metadata, lineage, the times of its save, tags, pins. Branches are there
// again with all their steps; one whose origin is gone shares nothing with the
// others. Never changes `from`, and `to` is there when all is done or not at
// all: a folder `to`.recovering holds what is being made, and goes away also on
// an error; what a killed recovery left there the next one takes away.
//
// kNotFound: there is no store at `from`. kAlreadyExists: something is at `to`
// (what the recovery that made it left beside it as it was killed goes), or
// another recovery in `to`.recovering. kInvalidArgument: `to` would lie in
// `from`; `from` is an address, whose steps are copied (copy.h). kUnavailable:
// `from` has a live writer. kCancelled.
CKPTREE_EXPORT absl::StatusOr<RecoverReport> Recover(
    const std::string& from, const std::string& to,
    const RecoverOptions& options = {});

}  // namespace ckptree

#endif  // CKPTREE_RECOVER_H_
