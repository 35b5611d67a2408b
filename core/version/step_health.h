// SPDX-License-Identifier: Apache-2.0

// Which steps are healthy.

#ifndef CKPTREE_CORE_VERSION_STEP_HEALTH_H_
#define CKPTREE_CORE_VERSION_STEP_HEALTH_H_

#include <cmath>
#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace ckptree::internal {

// As Recover() begins the note of a step that it found a part of.
inline constexpr std::string_view kRecoveredNote = "[recovered: ";
inline constexpr std::string_view kLeavesLost = " leaves lost";

// What such a note says of that, as "recovered: 1 of 35 leaves lost"; empty:
// nothing was lost.
inline std::string_view LossIn(std::string_view note) {
  // Whoever saves may begin a note alike.
  std::string_view rest = note;
  const auto take = [&rest](std::string_view text) {
    const bool there = rest.starts_with(text);
    if (there) rest.remove_prefix(text.size());
    return there;
  };
  const auto take_number = [&rest] {
    const std::size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == rest.npos) return false;
    rest.remove_prefix(digits);
    return true;
  };
  if (!take(kRecoveredNote) || rest.starts_with("0 of ") || !take_number() ||
      !take(" of ") || !take_number() || !take(kLeavesLost) || !take("]")) {
    return "";
  }
  return note.substr(1, note.size() - rest.size() - 2);
}

// No array has a NaN or an Inf, which is known of each, and no metric is one: a
// run whose loss is infinite has diverged whatever its arrays hold. Nor is one
// that lost leaves, whatever the rest holds. `step`: a StepInfo, or the record
// of a step.
template <typename Step>
bool IsHealthy(const Step& step) {
  if (step.nonfinite_leaves != 0 || step.unknown_leaves != 0) return false;
  if (!LossIn(step.note).empty()) return false;
  for (const auto& [name, value] : step.metrics) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

// kNotFound: none of the steps is healthy, and of `unknown` of them that is not
// known. `steps` says which there are.
inline absl::Status NoneIsHealthy(std::size_t unknown, std::string_view steps) {
  if (unknown == 0) {
    return absl::NotFoundError(absl::StrFormat(
        "no step is without NaN and Inf, in arrays and metrics, and has all "
        "its leaves; %s",
        steps));
  }
  return absl::NotFoundError(absl::StrFormat(
      "no step is known to be without NaN and Inf, in arrays and metrics: of "
      "%d steps statistics were not recorded, as they were saved with "
      "statistics off; name a step by its number; %s",
      unknown, steps));
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_HEALTH_H_
