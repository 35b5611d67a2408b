// SPDX-License-Identifier: Apache-2.0

#include "tools/report/choose_steps.h"

#include <algorithm>

namespace ckptree::tools {
namespace {

bool IsMarked(const StepInfo& step) {
  return !step.tags.empty() || step.pinned || step.nan_count > 0 ||
         step.inf_count > 0;
}

// `count` of `from`, evenly, the first and the last among them.
std::vector<std::size_t> Evenly(const std::vector<std::size_t>& from,
                                std::size_t count) {
  if (from.size() <= count) return from;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    chosen.push_back(
        from[count == 1 ? 0 : i * (from.size() - 1) / (count - 1)]);
  }
  return chosen;
}

}  // namespace

std::vector<std::size_t> ChooseSteps(const std::vector<StepInfo>& steps,
                                     std::size_t most) {
  std::vector<std::size_t> all, marked;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    all.push_back(i);
    if (IsMarked(steps[i])) marked.push_back(i);
  }
  if (all.size() <= most) return all;
  marked = Evenly(marked, most / 2);
  std::vector<bool> chosen(steps.size());
  for (const std::size_t i : marked) chosen[i] = true;
  for (const std::size_t i : Evenly(all, most - marked.size())) {
    chosen[i] = true;
  }
  std::erase_if(all, [&](std::size_t i) { return !chosen[i]; });
  return all;
}

}  // namespace ckptree::tools
