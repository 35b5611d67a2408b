// SPDX-License-Identifier: Apache-2.0

// The preservation policy of a branch, as it is stored and as it would decide.
//
//   absl::StatusOr<ckptree::PolicyReport> report = store.PreviewPolicy(
//       "", *ckptree::ParsePreservation("latest(3) | every(1000)"));
//   for (const ckptree::PolicyVerdict& step : report->steps) {
//     Print(step.step, step.kept, step.why);
//   }

#ifndef CKPTREE_POLICY_H_
#define CKPTREE_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/preservation.h"
#include "ckptree/usage.h"

namespace ckptree {

// The policy of a branch: which of its steps live. It is stored with the branch
// as a text, and every program that saves to the branch applies it.
struct PolicyInfo {
  std::string text = {};     // Empty: none was set, and all steps live.
  Preservation policy = {};  // PreserveAll where it cannot be read.
  // Why it cannot be applied here: a rule of a newer engine, a function of
  // another program. Nothing is removed by it then.
  absl::Status applicable = absl::OkStatus();
  // It came with the options of a program (a CheckpointManager), which puts it
  // back to all when it is opened without them; false: set by hand.
  bool from_program = false;
  std::string set_by = {};  // Version of the engine.
  absl::Time set = absl::UnixEpoch();
};

// What a policy says of one step, and why. A step that any of the reasons keeps
// is kept.
struct PolicyVerdict {
  std::int64_t step = 0;
  std::uint64_t version = 0;             // The store's own number of the save.
  absl::Time begun = absl::UnixEpoch();  // The time that the policy sees.
  bool kept = true;
  // "latest(3)", "pinned", "tag best": all that keeps it; "newest" where only
  // that does.
  std::vector<std::string> why = {};
};

// What a policy makes of the steps of a branch.
struct PolicyReport {
  std::string policy = {};  // Its text.
  // All steps of the branch, ascending by number.
  std::vector<PolicyVerdict> steps = {};
  FreedBytes freed = {};  // By removing those that are not kept.
};

}  // namespace ckptree

#endif  // CKPTREE_POLICY_H_
