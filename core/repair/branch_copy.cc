// SPDX-License-Identifier: Apache-2.0

#include "core/repair/branch_copy.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/store.h"

namespace ckptree::internal {

std::vector<std::string> BranchCopier::NameBranches() {
  std::vector<std::string> losses;
  Catalog& catalog = from_.catalog();
  for (const StepRecordPtr& step : catalog.AllSteps()) {
    const std::map<std::uint32_t, schema::BranchRecord> branches =
        catalog.Branches();
    if (step->branch == kMainBranch || branches.contains(step->branch))
      continue;
    schema::BranchRecord branch;
    branch.name = absl::StrFormat("branch-%d", step->branch);
    while (catalog.FindBranch(branch.name).ok()) branch.name += "x";
    // Of where it came from nothing is known: from its own first step.
    branch.origin_branch = step->branch;
    branch.origin_step = step->step;
    branch.origin_version = step->version;
    branch.created_ns = step->begun_ns;
    losses.push_back(absl::StrFormat(
        "the name of branch %d, whose steps are those of branch %s "
        "now, and where it came from",
        step->branch, branch.name));
    catalog.PutBranch(step->branch, std::move(branch));
  }
  // Steps of the main branch are there without its row.
  if (!catalog.Branches().contains(kMainBranch))
    catalog.PutBranch(kMainBranch, {});
  return losses;
}

absl::Status BranchCopier::Copy(std::string_view name) {
  if (name.empty() || !begun_.emplace(name).second) return absl::OkStatus();
  const Catalog& catalog = from_.catalog();
  const std::map<std::uint32_t, schema::BranchRecord> branches =
      catalog.Branches();
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog.FindBranch(name));
  schema::BranchRecord branch = branches.at(number);
  branch.tip = 0;
  // The branch it comes from may be dropped, and its number in use again here.
  const auto before = branches.find(branch.origin_branch);
  bool orphan = true;
  if (before != branches.end()) {
    CKPTREE_RETURN_IF_ERROR(Copy(before->second.name));
    const StepRecordPtr origin =
        catalog.Find(before->first, branch.origin_step);
    const auto made = to_.catalog().FindBranch(before->second.name);
    orphan = !made.ok();
    if (made.ok()) branch.origin_branch = *made;
    // What has that number now may be another step than the origin.
    if (made.ok() && origin != nullptr &&
        origin->version == branch.origin_version) {
      const StepRecordPtr saved = to_.catalog().Find(*made, branch.origin_step);
      if (saved != nullptr) {
        branch.tip = branch.origin_version = saved->version;
      } else if (catalog.Steps(number).empty()) {
        losses_.push_back(absl::StrFormat(
            "branch %s, which has no step of its own: step %s, from which it "
            "goes on, is lost",
            name, StepText(before->second.name, branch.origin_step)));
      }
    }
  }
  return to_.commits().AdoptBranch(std::move(branch), orphan);
}

absl::Status BranchCopier::CopySettings(std::string_view name) {
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           from_.catalog().FindBranch(name));
  const auto settings = from_.catalog().Settings(number);
  if (settings == nullptr) return absl::OkStatus();
  return to_.settings().Adopt(name, *settings);
}

}  // namespace ckptree::internal
