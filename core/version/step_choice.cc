// SPDX-License-Identifier: Apache-2.0

#include "core/version/step_choice.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/version/step_health.h"

namespace ckptree::internal {

std::string KnownSteps(const StepsByNumber& steps, std::string_view branch) {
  const std::string owner =
      branch.empty() ? "the store" : absl::StrFormat("branch '%s'", branch);
  if (steps.empty()) return owner + " has no step yet";
  const std::int64_t first = steps.begin()->first;
  if (steps.size() == 1) return absl::StrCat(owner, " has one step, ", first);
  return absl::StrFormat("%s has %d steps from %d to %d", owner, steps.size(),
                         first, steps.rbegin()->first);
}

absl::StatusOr<StepRecordPtr> LastHealthy(const StepsByNumber& steps,
                                          std::string_view branch) {
  StepRecordPtr found;
  std::size_t unknown = 0;
  for (const auto& [step, record] : steps) {
    if (IsHealthy(*record)) found = record;
    unknown += record->unknown_leaves > 0 ? 1 : 0;
  }
  if (found == nullptr) {
    return NoneIsHealthy(unknown, KnownSteps(steps, branch));
  }
  return found;
}

absl::StatusOr<StepRecordPtr> BestOf(const StepsByNumber& steps,
                                     const StepSelector& selector) {
  const bool least = selector.mode == BestMode::kMin;
  if (!least && selector.mode != BestMode::kMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d is no mode of a best step: kMin or kMax",
                        static_cast<int>(selector.mode)));
  }
  if (selector.name.empty()) {
    return absl::InvalidArgumentError(
        "the best step by a policy is asked of a CheckpointManager, which has "
        "one: name a metric, as in Best(metric, mode)");
  }
  StepRecordPtr found;
  double best = 0;
  for (const auto& [step, record] : steps) {
    for (const auto& [name, value] : record->metrics) {
      if (name != selector.name || std::isnan(value)) continue;
      if (found == nullptr || (least ? value <= best : value >= best)) {
        found = record;
        best = value;
      }
    }
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("no step has a metric '%s' that is a number; %s",
                        selector.name, KnownSteps(steps, selector.branch)));
  }
  return found;
}

}  // namespace ckptree::internal
