// SPDX-License-Identifier: Apache-2.0

// The steps that words of a command line name.

#ifndef CKPTREE_TOOLS_LINE_STEP_RANGE_H_
#define CKPTREE_TOOLS_LINE_STEP_RANGE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// The steps of a branch, ascending. kNotFound names the branches there are.
absl::StatusOr<std::vector<StepInfo>> StepsOfBranch(Session& session,
                                                    std::string_view branch);

// The `count` of them with the highest numbers: others are not read for it.
absl::StatusOr<std::vector<StepInfo>> NewestOfBranch(Session& session,
                                                     std::string_view branch,
                                                     std::size_t count);

// An end of a range as one step is written: "400" for "-2" where 400 is the
// last but one of the steps that are listed. All else as it is. `branch`: of an
// end that names none. kNotFound: there are not so many.
absl::StatusOr<std::string> PlainEnd(Session& session, std::string_view end,
                                     std::string_view branch = "");

// The steps that `word`, a REV or a range of them, names, ascending; of
// `branch` where it names no other. The ends of a range need not exist, a
// single step must.
absl::StatusOr<std::vector<StepInfo>> FindSteps(Session& session,
                                                std::string_view word,
                                                std::string_view branch = "");

// The save that `step` was compared with, on whichever branch it is: that of
// the first one of a branch is on another. Nothing where there is none, or it
// went.
absl::StatusOr<std::optional<StepInfo>> BaseOf(Session& session,
                                               const StepInfo& step);

// The steps that the words name, by branch and number, each once.
absl::StatusOr<std::vector<StepInfo>> FindAllSteps(
    Session& session, const std::vector<std::string>& words);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_STEP_RANGE_H_
