// SPDX-License-Identifier: Apache-2.0

#include "core/engine/policy_preview.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "core/engine/usage.h"

namespace ckptree::internal {

absl::StatusOr<PolicyReport> PreviewPolicy(
    Engine* engine, std::string_view branch,
    const std::optional<Preservation>& policy) {
  CKPTREE_RETURN_IF_ERROR(engine->CheckUsable());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           engine->catalog().FindBranch(branch));
  PolicyReport report;
  Preservation wanted;
  if (policy.has_value()) {
    CKPTREE_RETURN_IF_ERROR(engine->retention().CheckSettable(*policy));
    wanted = *policy;
  } else {
    PolicyInfo info = engine->retention().Of(number);
    CKPTREE_RETURN_IF_ERROR(info.applicable);
    wanted = std::move(info.policy);
  }
  report.policy = Text(wanted);
  // Nothing is collected while a budget is read.
  absl::StatusOr<std::vector<PolicyVerdict>> verdicts = absl::UnknownError("");
  engine->RunPaused(
      [&] { verdicts = engine->retention().Judge(number, wanted); });
  CKPTREE_ASSIGN_OR_RETURN(report.steps, std::move(verdicts));
  std::vector<StepSelector> removed;
  for (const PolicyVerdict& verdict : report.steps) {
    if (!verdict.kept) removed.push_back(AtStep(verdict.step, branch));
  }
  if (!removed.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(report.freed, WouldFree(engine, removed));
  }
  return report;
}

}  // namespace ckptree::internal
