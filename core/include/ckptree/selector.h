// Which step is meant.

#ifndef CKPTREE_SELECTOR_H_
#define CKPTREE_SELECTOR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/export.h"

namespace ckptree {

// Resolved when it is used, against the steps there are then.
struct StepSelector {
  enum class Kind { kStep, kLatest, kBest, kTag, kHealthy };
  enum class Mode { kMin, kMax };

  Kind kind = Kind::kLatest;
  std::int64_t step = 0;   // kStep.
  std::string name = {};   // kBest: the metric; kTag: the tag.
  Mode mode = Mode::kMin;  // kBest.
  int back = 0;            // This many saves earlier on the line (latest~2).
  std::string line = {};   // Empty: the main line. Tags know their line.
};

// Names of forks: letters, digits, '_', '-', '.', of which the first is a
// letter; 1 to 128 bytes; not main, latest, best or healthy.
CKPTREE_EXPORT bool IsLineName(std::string_view name);

CKPTREE_EXPORT StepSelector AtStep(std::int64_t step,
                                   std::string_view line = "");
// The step with the highest number.
CKPTREE_EXPORT StepSelector Latest();
// The step with the best value of `metric`; NaN never is, ties go to the later
// step.
CKPTREE_EXPORT StepSelector
Best(std::string_view metric,
     StepSelector::Mode mode = StepSelector::Mode::kMin);
CKPTREE_EXPORT StepSelector Tagged(std::string_view tag);
// The step with the highest number of those without NaN and Inf.
CKPTREE_EXPORT StepSelector LatestHealthy();

// "1200", "latest", "latest~2", "best:loss", "best:acc:max", "healthy", "@tag";
// on a fork "LINE/1200", "LINE/latest", ... kInvalidArgument otherwise.
CKPTREE_EXPORT absl::StatusOr<StepSelector> ParseSelector(
    std::string_view text);
// What ParseSelector reads as `selector`.
CKPTREE_EXPORT std::string Text(const StepSelector& selector);
// The same for a step of a line: "1200", on a fork "LINE/1200".
CKPTREE_EXPORT std::string StepText(std::string_view line, std::int64_t step);

}  // namespace ckptree

#endif  // CKPTREE_SELECTOR_H_
