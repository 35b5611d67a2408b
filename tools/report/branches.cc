// SPDX-License-Identifier: Apache-2.0

#include "tools/report/branches.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tools/report/choose_steps.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kMostBranches = 12;
constexpr std::size_t kMostBranchSteps = 2000;

struct BranchCurve {
  std::vector<std::int64_t> step;
  std::vector<double> value;
};

Json CurvesOf(const std::vector<StepInfo>& steps, NumberPack* pack) {
  std::map<std::string, BranchCurve> curves;
  for (const std::size_t i : ChooseSteps(steps, kMostBranchSteps)) {
    for (const auto& [name, value] : steps[i].metrics) {
      curves[name].step.push_back(steps[i].step);
      curves[name].value.push_back(value);
    }
  }
  Json metrics = Json::array();
  for (const auto& [name, curve] : curves) {
    metrics.push_back(
        {{"name", name},
         {"step", pack->AddIntegers(curve.step)},
         {"value", pack->AddFloats(curve.value, Digits::kFloat)}});
  }
  return metrics;
}

}  // namespace

absl::StatusOr<Json> BranchesOf(const Store& store,
                                const std::vector<StepInfo>& steps,
                                NumberPack* pack) {
  absl::StatusOr<std::vector<BranchInfo>> all = store.Branches();
  if (!all.ok()) return all.status();
  std::erase_if(*all, [&steps](const BranchInfo& branch) {
    return branch.name.empty() || branch.origin_branch != steps.back().branch ||
           branch.origin_step < steps.front().step;
  });
  std::stable_sort(all->begin(), all->end(),
                   [](const BranchInfo& a, const BranchInfo& b) {
                     return a.created > b.created;
                   });
  if (all->size() > kMostBranches) all->resize(kMostBranches);
  Json branches = Json::array();
  for (const BranchInfo& branch : *all) {
    const absl::StatusOr<std::vector<StepInfo>> own = store.Steps(branch.name);
    // Dropped since then.
    if (absl::IsNotFound(own.status())) continue;
    if (!own.ok()) return own.status();
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), branch.origin_step,
                         [](std::int64_t number, const StepInfo& info) {
                           return number < info.step;
                         });
    branches.push_back(
        {{"name", branch.name},
         {"at", after - steps.begin() - 1},
         {"from", branch.origin_step},
         {"steps", own->size()},
         {"newest", own->empty() ? Json() : Json(own->back().step)},
         {"metrics", CurvesOf(*own, pack)}});
  }
  return branches;
}

}  // namespace ckptree::tools
