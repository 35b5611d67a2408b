// SPDX-License-Identifier: Apache-2.0

#include "core/engine/tied_leaves.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace ckptree::internal {

absl::StatusOr<LeafInfo> HolderOf(const Step& step, LeafInfo info) {
  if (!info.tie_to.has_value()) return info;
  CKPTREE_ASSIGN_OR_RETURN(LeafInfo holder, step.Holder(info));
  holder.name = std::move(info.name);
  holder.path = std::move(info.path);
  holder.tie_to = std::move(info.tie_to);
  return holder;
}

absl::Status FollowTies(const Step& step, std::vector<LeafInfo>* infos) {
  for (LeafInfo& info : *infos) {
    if (!info.tie_to.has_value()) continue;
    CKPTREE_ASSIGN_OR_RETURN(info, HolderOf(step, std::move(info)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LeafDetail>> DetailsOf(
    const Step& step, const std::vector<LeafInfo>& infos) {
  const auto is_tie = [](const LeafInfo& info) {
    return info.tie_to.has_value();
  };
  if (std::none_of(infos.begin(), infos.end(), is_tie)) {
    return step.Details(infos);
  }
  std::vector<LeafInfo> holders = infos;
  for (LeafInfo& info : holders) {
    if (info.tie_to.has_value()) info.path = *info.tie_to;
  }
  return step.Details(holders);
}

}  // namespace ckptree::internal
