// SPDX-License-Identifier: Apache-2.0

// Random operations on a store, and what they do to the model.

#ifndef CKPTREE_TESTS_MODEL_DRIVER_H_
#define CKPTREE_TESTS_MODEL_DRIVER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/fault/plan.h"
#include "tests/fault/random.h"
#include "tests/model/state.h"

namespace ckptree::testing {

struct ModelOperation {
  enum class Kind {
    kSaves,   // One, or several in flight at once.
    kDelete,  // Of `step`, as the next four.
    kTag,
    kUntag,
    kPin,
    kUnpin,
    kReopen,   // Close, open.
    kRestore,  // A whole step.
    kBox,
    kCatalog,  // Steps, tags, pins, details of `step`.
    kVerify,   // Deep.
    kCollect,  // Everything, or half of it.
    kFork,     // Branch `branch` off `step`.
    kDropBranch,
    kRetain,  // All but the last `versions` of `branch`, and pinned ones, go.
  };
  struct Save {
    enum class Fate {
      kCommits,
      kBadInput,   // A leaf twice: fails.
      kCancelled,  // Commits or not.
      kRefused,    // The step exists, or is pinned: fails.
      kNotKept,    // There are later steps, and the policy keeps those: fails.
    };
    std::int64_t step = 0;
    ModelState::Content content;
    bool overwrite = false;
    Fate fate = Fate::kCommits;
  };

  Kind kind = Kind::kCatalog;
  std::vector<Save> saves;
  std::int64_t step = 0;
  bool refused = false;  // kDelete: of a pinned or missing step.
  int versions = -1;     // kCollect: at most so many; -1: all.
  int policy = -1;  // kSaves, of one save: keeps so many steps of its branch.
  std::string tag;
  std::int64_t branch = 0;
  std::uint64_t seed = 0;
  std::optional<FaultPlan> fault;  // The process may die in it.

  std::string Text() const;
};

// Next() depends on nothing but the seed and what was applied: a copy in
// another process, told the same results, stays in step.
class ModelDriver {
 public:
  explicit ModelDriver(std::uint64_t seed) : random_(seed) {}

  ModelOperation Next();

  // `results`: of each save, whether it was committed.
  void Apply(const ModelOperation& operation, const std::vector<bool>& results);

  // The states that a death in the middle of `operation` may leave, where the
  // first of its saves have ended with `results`.
  std::vector<ModelState> Possible(const ModelOperation& operation,
                                   const std::vector<bool>& results) const;
  void Adopt(ModelState state) { state_ = std::move(state); }

  const ModelState& state() const { return state_; }

 private:
  ModelOperation::Save NextSave(bool large);
  std::int64_t AnyStep();
  static void ApplySave(const ModelOperation::Save& save, int policy,
                        ModelState* state);
  static void ApplyOther(const ModelOperation& operation, ModelState* state);

  FaultRandom random_;
  ModelState state_;
  // By branch: what the next save starts from, and its step.
  std::map<std::int64_t, ModelState::Content> last_;
  std::map<std::int64_t, std::int64_t> next_step_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_MODEL_DRIVER_H_
