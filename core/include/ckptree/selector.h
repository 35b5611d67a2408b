// SPDX-License-Identifier: Apache-2.0

// Which step is meant: by number, by what it is, by tag.
//
//   store.OpenStep(ckptree::AtStep(1200));
//   store.OpenStep(ckptree::Best("loss", ckptree::BestMode::kMin));
//   store.OpenStep(*ckptree::ParseSelector("lr-small/latest~2"));

#ifndef CKPTREE_SELECTOR_H_
#define CKPTREE_SELECTOR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/best_mode.h"
#include "ckptree/export.h"

namespace ckptree {

// Resolved when it is used, against the steps that there are then: two uses of
// Latest() may open two steps. Text() and ParseSelector() turn it into what
// people type and back.
struct StepSelector {
  enum class Kind { kStep, kLatest, kBest, kTag, kHealthy };
  Kind kind = Kind::kLatest;
  std::int64_t step = 0;           // kStep.
  std::string name = {};           // kBest: the metric; kTag: the tag.
  BestMode mode = BestMode::kMin;  // kBest.
  int back = 0;             // This many saves earlier on the branch (latest~2).
  std::string branch = {};  // Empty: the main branch. Tags know their branch.
  // The step only where it is this save (StepInfo::version), of every kind, and
  // kFailedPrecondition where it is another by then; 0: whichever.
  std::uint64_t version = 0;
};

// Names of forks: letters, digits, '_', '-', '.', of which the first is a
// letter; 1 to 128 bytes; not main, latest, best or healthy.
CKPTREE_EXPORT bool IsBranchName(std::string_view name);

CKPTREE_EXPORT StepSelector AtStep(std::int64_t step,
                                   std::string_view branch = "");
// The step with the highest number, which need not be the one saved last. Of
// the main branch, as below, where `branch` is empty.
CKPTREE_EXPORT StepSelector Latest(std::string_view branch = "");
// The step with the best value of `metric`: the smallest or the largest, as
// `mode` says. NaN is never the best; of equal values the later step is taken.
CKPTREE_EXPORT StepSelector Best(std::string_view metric, BestMode mode,
                                 std::string_view branch = "");
// For CheckpointManager::OpenStep() alone: the step of its BestStep().
CKPTREE_EXPORT StepSelector BestByPolicy();
CKPTREE_EXPORT StepSelector Tagged(std::string_view tag);
// The step with the highest number of those without NaN and Inf in any array
// and metric: where to go back to when a run has diverged. Values that are no
// arrays do not count.
CKPTREE_EXPORT StepSelector LatestHealthy(std::string_view branch = "");

// "1200", "latest", "latest~2", "best:loss:min", "best:acc:max", "healthy",
// "@tag"; on a fork "BRANCH/1200", "BRANCH/latest", ... kInvalidArgument
// otherwise.
CKPTREE_EXPORT absl::StatusOr<StepSelector> ParseSelector(
    std::string_view text);
// What ParseSelector reads as `selector`: for messages and command lines.
CKPTREE_EXPORT std::string Text(const StepSelector& selector);
// The same for a step of a branch: "1200", on a fork "BRANCH/1200".
CKPTREE_EXPORT std::string StepText(std::string_view branch, std::int64_t step);

}  // namespace ckptree

#endif  // CKPTREE_SELECTOR_H_
