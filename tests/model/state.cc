// SPDX-License-Identifier: Apache-2.0

#include "tests/model/state.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::testing {

StepSelector SelectorOf(std::int64_t key) {
  StepSelector selector = AtStep(key % kBranchSteps);
  selector.branch = BranchName(key / kBranchSteps);
  return selector;
}

std::string BranchName(std::int64_t branch) {
  return branch == 0 ? "" : absl::StrFormat("branch%d", branch);
}

void ModelState::DropBranch(std::int64_t branch) {
  while (true) {
    const auto step = steps.lower_bound(branch * kBranchSteps);
    if (step == steps.end() || step->first / kBranchSteps != branch) break;
    Delete(step->first);
  }
  branches.erase(branch);
}

std::vector<std::int64_t> ModelState::Victims(std::int64_t branch, int keep,
                                              bool by_policy) const {
  std::vector<std::int64_t> victims;
  for (auto it = steps.lower_bound(branch * kBranchSteps);
       it != steps.end() && it->first / kBranchSteps == branch; ++it) {
    victims.push_back(it->first);
  }
  victims.resize(victims.size() -
                 std::min(victims.size(), static_cast<std::size_t>(keep)));
  std::erase_if(victims,
                [this](std::int64_t step) { return pins.contains(step); });
  if (by_policy) {
    for (const auto& [tag, step] : tags) std::erase(victims, step);
  }
  return victims;
}

void ModelState::Save(std::int64_t step, Content content) {
  steps[step] = std::move(content);
}

void ModelState::Delete(std::int64_t step) {
  steps.erase(step);
  std::erase_if(tags, [step](const auto& tag) { return tag.second == step; });
}

std::string ModelState::Text() const {
  std::string text = "steps";
  for (const auto& [step, content] : steps) absl::StrAppend(&text, " ", step);
  if (!tags.empty()) text += "; tags";
  for (const auto& [name, step] : tags) {
    absl::StrAppend(&text, " ", name, "=", step);
  }
  if (!pins.empty()) text += "; pinned";
  for (std::int64_t step : pins) absl::StrAppend(&text, " ", step);
  if (branches.size() > 1) text += "; branches";
  for (std::int64_t branch : branches) absl::StrAppend(&text, " ", branch);
  return text;
}

namespace {

std::int64_t NumberOf(const std::string& branch) {
  return branch.empty() ? 0 : std::stoll(branch.substr(6));
}

}  // namespace

std::optional<std::string> CatalogDifference(const Store& store,
                                             const ModelState& state) {
  absl::StatusOr<std::vector<BranchInfo>> branches = store.Branches();
  if (!branches.ok())
    return "Branches: " + std::string(branches.status().ToString());
  ModelState found;
  std::string wrong;
  std::vector<StepInfo> all;
  for (const BranchInfo& branch : *branches) {
    found.branches.insert(NumberOf(branch.name));
    absl::StatusOr<std::vector<StepInfo>> steps = store.Steps(branch.name);
    if (!steps.ok()) return "Steps: " + std::string(steps.status().ToString());
    if (branch.steps != steps->size()) wrong = branch.name + ": another count";
    all.insert(all.end(), steps->begin(), steps->end());
  }
  std::map<std::uint64_t, std::int64_t> key_of;  // By version.
  for (const StepInfo& info : all) {
    const std::int64_t key = NumberOf(info.branch) * kBranchSteps + info.step;
    key_of[info.version] = key;
    found.steps[key] = nullptr;
    if (info.pinned) found.pins.insert(key);
    auto expected = state.steps.find(key);
    if (expected == state.steps.end()) continue;
    const ModelStep& content = *expected->second;
    const std::map<std::string, double> metrics(info.metrics.begin(),
                                                info.metrics.end());
    const auto ties =
        std::ranges::count_if(content.leaves, [](const auto& leaf) {
          return leaf.second.kind == ModelLeaf::Kind::kTie;
        });
    const std::uint64_t leaves =
        content.leaves.size() - static_cast<std::uint64_t>(ties);
    if (metrics != content.metrics || info.leaf_count != leaves) {
      wrong =
          absl::StrFormat("step %d: other metrics or leaf count", info.step);
    }
  }
  absl::StatusOr<std::vector<TagInfo>> tags = store.Tags();
  if (!tags.ok()) return "Tags: " + std::string(tags.status().ToString());
  for (const TagInfo& tag : *tags) found.tags[tag.name] = key_of[tag.version];
  if (found.Text() != state.Text()) {
    return absl::StrFormat("store has %s; expected %s", found.Text(),
                           state.Text());
  }
  if (!wrong.empty()) return wrong;
  return std::nullopt;
}

std::optional<std::string> StepDifference(const Store& store, std::int64_t step,
                                          const ModelStep& content) {
  absl::StatusOr<Step> opened = store.OpenStep(SelectorOf(step));
  std::optional<std::string> difference;
  if (!opened.ok()) {
    difference = std::string(opened.status().ToString());
  } else {
    difference = Difference(*opened, content);
  }
  if (difference) {
    difference = absl::StrFormat("step %d: %s", step, *difference);
  }
  return difference;
}

std::optional<std::string> StateDifference(const Store& store,
                                           const ModelState& state) {
  if (auto difference = CatalogDifference(store, state)) return difference;
  for (const auto& [step, content] : state.steps) {
    if (auto difference = StepDifference(store, step, *content)) {
      return difference;
    }
  }
  return std::nullopt;
}

std::optional<std::string> CollectAll(Store& store) {
  CollectOptions options;
  options.min_dead_fraction = 0;
  absl::StatusOr<CollectReport> report = store.Collect(options);
  if (!report.ok())
    return "Collect: " + std::string(report.status().ToString());
  if (!report->damaged.empty()) return "Collect: " + report->damaged[0];
  absl::StatusOr<std::vector<BranchInfo>> branches = store.Branches();
  if (!branches.ok())
    return "Branches: " + std::string(branches.status().ToString());
  std::erase_if(report->kept, [&](const KeptVersion& kept) {
    return branches->size() > 1 &&
           (kept.why == "two branches go on from it, until one is dropped" ||
            kept.why == "a branch that has no save yet goes on from it");
  });
  if (report->kept.empty()) return std::nullopt;
  return absl::StrFormat("step %d (version %d) is kept: %s",
                         report->kept[0].step, report->kept[0].version,
                         report->kept[0].why);
}

std::optional<std::string> DeepFindings(const Store& store, bool and_leaks) {
  VerifyOptions options;
  options.level = VerifyOptions::Level::kDeep;
  absl::StatusOr<VerifyReport> report = store.Verify(options);
  if (!report.ok()) return "Verify: " + std::string(report.status().ToString());
  std::string text;
  for (const Finding& finding : report->findings) {
    if (finding.severity == Finding::Severity::kWarning && !and_leaks) continue;
    absl::StrAppend(&text, text.empty() ? "" : " | ", finding.what);
  }
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace ckptree::testing
