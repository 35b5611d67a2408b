// SPDX-License-Identifier: Apache-2.0

// What a manager tells of its steps.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ckptree/manager.h"
#include "core/manage/manager_impl.h"
#include "core/process/guarded_call.h"
#include "core/version/step_health.h"

namespace ckptree {

using internal::GuardedResult;

namespace {

using MetricList = std::vector<std::pair<std::string, double>>;

std::string FirstKey(const LeafInfo& leaf) {
  const auto& parts = leaf.path.parts();
  return parts.empty() ? "" : Path({parts.front()}).Text();
}

// A fork that has no step yet goes on from where it parted.
absl::StatusOr<StepSelector> LatestOrOrigin(const Store& store,
                                            const StepSelector& latest) {
  if (latest.branch.empty() || latest.back > 0) return latest;
  // Not where rows of its steps cannot be read.
  if (!absl::IsNotFound(store.Resolve(latest).status())) return latest;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    if (branch.name != latest.branch || branch.steps > 0) continue;
    const StepSelector origin =
        AtStep(branch.origin_step, branch.origin_branch);
    const absl::StatusOr<StepInfo> found = store.Resolve(origin);
    if (found.ok() && found->version == branch.origin_version) return origin;
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
    return absl::NotFoundError(absl::StrFormat(
        "branch '%s' has no step to go on from: step %d, which it was forked "
        "from, %s since: fork it anew, or save a step to it first",
        branch.name, branch.origin_step,
        found.ok() ? "was saved anew" : "was deleted"));
  }
  return latest;
}

}  // namespace

absl::StatusOr<Step> CheckpointManager::OpenStep(
    StepSelector selector, const std::vector<std::string>& items) const {
  return GuardedResult("OpenStep", [&]() -> absl::StatusOr<Step> {
    CKPTREE_RETURN_IF_ERROR(impl_->WaitToRead());
    if (selector.kind == StepSelector::Kind::kBest && selector.name.empty()) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> best,
                               BestStep());
      if (!best.has_value()) {
        return absl::NotFoundError("no step has the metric that is the best's");
      }
      selector = AtStep(*best);
    }
    selector = impl_->OnBranch(std::move(selector));
    if (selector.kind == StepSelector::Kind::kLatest) {
      CKPTREE_ASSIGN_OR_RETURN(selector,
                               LatestOrOrigin(impl_->store, selector));
    }
    CKPTREE_ASSIGN_OR_RETURN(Step step, impl_->store.OpenStep(selector));
    if (items.empty()) return step;
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves, step.Leaves());
    std::vector<std::string> known;
    for (const LeafInfo& leaf : leaves) {
      std::string name = FirstKey(leaf);
      if (known.empty() || known.back() != name)
        known.push_back(std::move(name));
    }
    for (const std::string& item : items) {
      if (std::find(known.begin(), known.end(), item) != known.end()) continue;
      return absl::NotFoundError(
          absl::StrFormat("step %d has no item '%s'; it has %s", step.step(),
                          item, absl::StrJoin(known, ", ")));
    }
    return step;
  });
}

absl::StatusOr<std::vector<std::int64_t>> CheckpointManager::AllSteps() const {
  return GuardedResult("AllSteps",
                       [&]() -> absl::StatusOr<std::vector<std::int64_t>> {
                         CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
                         return impl_->store.StepNumbers(impl_->Branch());
                       });
}

absl::StatusOr<std::optional<std::int64_t>> CheckpointManager::LatestStep()
    const {
  return GuardedResult("LatestStep",
                       [&]() -> absl::StatusOr<std::optional<std::int64_t>> {
                         CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
                         const absl::StatusOr<StepInfo> info =
                             impl_->store.Resolve(impl_->OnBranch(Latest()));
                         if (absl::IsNotFound(info.status())) {
                           CKPTREE_RETURN_IF_ERROR(impl_->CheckBranch());
                           return std::optional<std::int64_t>();
                         }
                         CKPTREE_RETURN_IF_ERROR(info.status());
                         return std::optional<std::int64_t>(info->step);
                       });
}

absl::StatusOr<std::optional<std::int64_t>> CheckpointManager::BestStep()
    const {
  return GuardedResult(
      "BestStep", [&]() -> absl::StatusOr<std::optional<std::int64_t>> {
        CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
        CKPTREE_ASSIGN_OR_RETURN(const Preservation policy,
                                 impl_->PolicyToJudgeBy());
        const std::optional<BestN> rule =
            internal::BestOf(impl_->options, policy);
        const absl::StatusOr<std::optional<std::int64_t>> latest = LatestStep();
        if (!rule.has_value() || !latest.ok()) return latest;
        // Where the row of a step cannot be read, that may be the better one.
        if (const absl::Status status =
                impl_->store.Resolve(impl_->OnBranch(LatestHealthy())).status();
            absl::IsDataLoss(status)) {
          return status;
        }
        CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                                 impl_->store.Steps(impl_->Branch()));
        std::optional<std::int64_t> found;
        double best = 0;
        for (const StepInfo& info : steps) {
          PolicyStep step;
          step.step = info.step;
          step.time = info.begun;
          step.metrics = info.metrics;
          step.healthy = internal::IsHealthy(info);
          CKPTREE_ASSIGN_OR_RETURN(const std::optional<double> value,
                                   MetricOf(*rule, step));
          if (!value.has_value()) continue;
          const bool better =
              !found.has_value() ||
              (rule->mode == BestMode::kMin ? *value <= best : *value >= best);
          if (!better) continue;
          found = info.step;
          best = *value;
        }
        return found;
      });
}

absl::StatusOr<MetricList> CheckpointManager::Metrics(std::int64_t step) const {
  return GuardedResult("Metrics", [&]() -> absl::StatusOr<MetricList> {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    CKPTREE_ASSIGN_OR_RETURN(
        StepInfo info, impl_->store.Resolve(AtStep(step, impl_->Branch())));
    return std::move(info.metrics);
  });
}

absl::StatusOr<std::vector<ItemInfo>> CheckpointManager::ItemMetadata(
    std::int64_t step) const {
  return GuardedResult(
      "ItemMetadata", [&]() -> absl::StatusOr<std::vector<ItemInfo>> {
        CKPTREE_ASSIGN_OR_RETURN(const Step opened, OpenStep(AtStep(step)));
        CKPTREE_ASSIGN_OR_RETURN(const StepMetadata metadata,
                                 opened.Metadata());
        CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves,
                                 opened.Leaves());
        std::vector<ItemInfo> items;
        for (const LeafInfo& leaf : leaves) {
          std::string name = FirstKey(leaf);
          if (items.empty() || items.back().name != name) {
            items.push_back({std::move(name), "tree", {}});
            for (const auto& [item, kind] : metadata.items) {
              // The name may need quotes as a part of a path.
              if (Path().Key(item).Text() == items.back().name) {
                items.back().kind = kind;
              }
            }
          }
          items.back().leaves.push_back(leaf);
        }
        return items;
      });
}

absl::Status CheckpointManager::Reload() {
  return GuardedResult("Reload", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    return impl_->store.Refresh();
  });
}

}  // namespace ckptree
