// SPDX-License-Identifier: Apache-2.0

// Which step of a branch is meant by what a selector asks of it.

#ifndef CKPTREE_CORE_VERSION_STEP_CHOICE_H_
#define CKPTREE_CORE_VERSION_STEP_CHOICE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/selector.h"
#include "core/version/step_rows.h"

namespace ckptree::internal {

// Whether the step is the save that the selector names; see
// StepSelector::version.
inline bool IsMeant(const StepSelector& selector,
                    const schema::StepRecord& step) {
  return selector.version == 0 || selector.version == step.version;
}

// Of what a message says that it is not there: what is.
std::string KnownSteps(const StepsByNumber& steps, std::string_view branch);

// The last that is healthy. kNotFound: none is, or of none that is known.
absl::StatusOr<StepRecordPtr> LastHealthy(const StepsByNumber& steps,
                                          std::string_view branch);

// The best by the metric that the selector names, the later of two that are as
// good. kNotFound: no step has it as a number.
absl::StatusOr<StepRecordPtr> BestOf(const StepsByNumber& steps,
                                     const StepSelector& selector);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_CHOICE_H_
