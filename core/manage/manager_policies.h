// SPDX-License-Identifier: Apache-2.0

// The policies that a manager's options stand for.

#ifndef CKPTREE_CORE_MANAGE_MANAGER_POLICIES_H_
#define CKPTREE_CORE_MANAGE_MANAGER_POLICIES_H_

#include <optional>

#include "absl/status/status.h"
#include "ckptree/manager.h"

namespace ckptree::internal {

// kInvalidArgument: options that mean nothing or contradict each other.
absl::Status CheckManagerOptions(const ManagerOptions& options);

SaveDecision DecisionOf(const ManagerOptions& options);

// Nothing where the options say nothing of which steps live.
std::optional<Preservation> PreservationOf(const ManagerOptions& options);

// The BestN of the options that bounds how many steps with a stored metric
// stay, and keeps all that lack it. Nothing where there is none.
std::optional<BestN> LimitOf(const ManagerOptions& options);

// What is the best step by: the options, else the first BestN of `policy`.
std::optional<BestN> BestOf(const ManagerOptions& options,
                            const Preservation& policy);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_MANAGE_MANAGER_POLICIES_H_
