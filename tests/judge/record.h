// SPDX-License-Identifier: Apache-2.0

// What was acknowledged of a store, kept outside of it, and what a store lacks
// of that.

#ifndef CKPTREE_TESTS_JUDGE_RECORD_H_
#define CKPTREE_TESTS_JUDGE_RECORD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "tests/model/state.h"

namespace ckptree::testing {

// Steps have the keys of ModelState: branch * kBranchSteps + step.
struct Acknowledged {
  ModelState state;
  std::map<std::int64_t, std::string> policies;  // By branch: the text.
  std::map<std::int64_t, std::string> metadata;  // By branch: of the run.
  std::map<std::int64_t, std::int64_t> origins;  // By branch: a step's key.

  // The key of the branch's latest step.
  std::optional<std::int64_t> Latest(std::int64_t branch) const;
};

// A leaf of a step, by the step's key.
using LeafOfStep = std::pair<std::int64_t, std::string>;

// "7", "branch1/7".
std::string StepName(std::int64_t key);
// The number of a branch called "branch<n>"; 0: the main branch.
std::int64_t BranchNumber(const std::string& branch);

// True where `text` has the step's number as a word, and the leaf's name.
bool NamesIt(std::string_view text, std::int64_t key, std::string_view leaf);

// One difference between a store and what was acknowledged.
struct Lack {
  enum class Kind {
    kGone,   // Not there, or an error instead of it.
    kOlder,  // "latest" is an earlier step.
    kWrong,  // Other bytes or another value, without an error.
    kExtra,  // There, and never acknowledged, or acknowledged as removed.
  };
  static constexpr std::int64_t kOfStore = -1;

  Kind kind = Kind::kGone;
  std::int64_t key = kOfStore;  // Of the step.
  std::string leaf = {};        // Empty: more than one leaf.
  std::string text = {};        // With the error, where there is one.
  bool named = false;           // Somebody said so, by name.
};

// Reads everything. `told`: what else was said of the store (warnings, the
// report of a recovery), asked where no error of a read names what is gone.
using Told = std::function<bool(std::int64_t key, std::string_view leaf)>;
std::vector<Lack> Lacks(const Store& store, const Acknowledged& acknowledged,
                        const Told& told);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_RECORD_H_
