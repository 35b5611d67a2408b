// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/removable.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/line/step_range.h"
#include "tools/output/failure.h"

namespace ckptree::tools {

absl::Status CheckMayGo(const Arguments& arguments,
                        const std::vector<StepInfo>& steps) {
  for (const StepInfo& info : steps) {
    const std::string name = StepText(info.branch, info.step);
    if (info.pinned) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("step %s is pinned; nothing was removed", name)),
          absl::StrFormat("`ckptree pin --delete %s` unpins it", name));
    }
    if (!info.tags.empty() && !arguments.Has("tagged")) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("step %s is tagged @%s; nothing was removed",
                              name, info.tags.front())),
          absl::StrFormat("--tagged removes it and its tags; `ckptree tag "
                          "--delete %s` takes the tag away",
                          info.tags.front()));
    }
  }
  return absl::OkStatus();
}

std::string TagsText(const std::vector<StepInfo>& steps) {
  std::vector<std::string> tags;
  for (const StepInfo& info : steps) {
    for (const std::string& tag : info.tags) tags.push_back("@" + tag);
  }
  if (tags.empty()) return "";
  return absl::StrFormat(" and the %s %s", tags.size() == 1 ? "tag" : "tags",
                         absl::StrJoin(tags, ", "));
}

}  // namespace ckptree::tools
