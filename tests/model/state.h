// SPDX-License-Identifier: Apache-2.0

// What a store must hold, kept outside of it.

#ifndef CKPTREE_TESTS_MODEL_STATE_H_
#define CKPTREE_TESTS_MODEL_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "tests/model/step.h"

namespace ckptree::testing {

// The steps of branch n have the keys n * kBranchSteps + step; branch 0 is the
// main branch, branch n is called "branch<n>".
inline constexpr std::int64_t kBranchSteps = 1000000;
StepSelector SelectorOf(std::int64_t key);
std::string BranchName(std::int64_t branch);  // Empty for branch 0.

// Cheap to copy: contents are shared.
struct ModelState {
  using Content = std::shared_ptr<const ModelStep>;

  std::map<std::int64_t, Content> steps;
  std::map<std::string, std::int64_t> tags;
  std::set<std::int64_t> pins;
  std::set<std::int64_t> branches = {0};

  void Save(std::int64_t step, Content content);
  void Delete(std::int64_t step);
  void DropBranch(std::int64_t branch);
  // All steps of a branch but the last `keep` and pinned ones; a policy leaves
  // tagged ones, too.
  std::vector<std::int64_t> Victims(std::int64_t branch, int keep,
                                    bool by_policy = false) const;

  // "steps 1 2 5; tags a=2; pinned 5"
  std::string Text() const;
};

// The first difference between the catalogs: steps, tags, pins, metrics, leaf
// counts. Reads no values.
std::optional<std::string> CatalogDifference(const Store& store,
                                             const ModelState& state);

// And every value of every step.
std::optional<std::string> StateDifference(const Store& store,
                                           const ModelState& state);

// Of one step.
std::optional<std::string> StepDifference(const Store& store, std::int64_t step,
                                          const ModelStep& content);

// What Verify(kDeep) finds, or why it cannot run. `and_leaks`: also what is
// stored and not referred to.
std::optional<std::string> DeepFindings(const Store& store,
                                        bool and_leaks = false);

// Collects everything that may go; what stays without need, or why it fails.
std::optional<std::string> CollectAll(Store& store);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_MODEL_STATE_H_
