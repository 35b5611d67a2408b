// SPDX-License-Identifier: Apache-2.0

// Save decisions: whether a step is to be saved. Pure functions; the rules and
// their results are those of Orbax's save_decision_policy.py.
//
//   ckptree::SaveDecision decision = ckptree::AnySave{
//       {ckptree::FixedInterval{1000}, ckptree::OnPreemption{}}};
//   absl::StatusOr<bool> save = ckptree::ShouldSave(decision, {.step = step});
//
// A trainer gives one to the manager (ManagerOptions::save_decision), which
// asks it before each save.

#ifndef CKPTREE_SAVE_DECISION_H_
#define CKPTREE_SAVE_DECISION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/preservation.h"

namespace ckptree {

// What a decision is made of: the step in question, and what was saved before.
struct SaveQuestion {
  // Its time: now. Nothing is known of its health.
  PolicyStep step = {};
  // The last step before it. While it is being saved it is not yet healthy.
  std::optional<PolicyStep> latest = {};
  // All steps before it, for functions that ask. Null: none.
  std::function<std::vector<PolicyStep>()> previous = {};
  bool saving_in_progress = false;
  bool preempted = false;
};

struct AnySave;
struct FixedInterval;
struct SpecificSteps;
struct ContinuousCheckpointing;
struct OnPreemption;
struct InitialSave;
struct SaveIf;
struct CustomSave;

// One of the rules below. A value: copies are cheap and share what they refer
// to. Const calls may be made from several threads at once.
class CKPTREE_EXPORT SaveDecision {
 public:
  using Rule = std::variant<AnySave, FixedInterval, SpecificSteps,
                            ContinuousCheckpointing, OnPreemption, InitialSave,
                            SaveIf, CustomSave>;

  SaveDecision();  // AnySave of none: never.
  // Each converts. NOLINTBEGIN
  SaveDecision(AnySave rule);
  SaveDecision(FixedInterval rule);
  SaveDecision(SpecificSteps rule);
  SaveDecision(ContinuousCheckpointing rule);
  SaveDecision(OnPreemption rule);
  SaveDecision(InitialSave rule);
  SaveDecision(SaveIf rule);
  SaveDecision(CustomSave rule);
  // NOLINTEND

  // REQUIRES: not moved from.
  const Rule& rule() const;

 private:
  std::shared_ptr<const Rule> rule_;  // Immutable: copies share it.
};

// `interval` (not 0) divides the step.
struct FixedInterval {
  std::int64_t interval = 1;
};
// The step is one of these.
struct SpecificSteps {
  std::vector<std::int64_t> steps = {};
};
// No save is in progress, and the last step is at least `minimum` old (nothing:
// any age), or there is none.
struct ContinuousCheckpointing {
  std::optional<absl::Duration> minimum = {};
};
// The process is about to be taken away (CheckpointManager::RequestPreemption).
struct OnPreemption {};
// There is no step yet: the first save of a run. Where a policy keeps none,
// that is so each time.
struct InitialSave {};
// Any of them, asked in their order until one says yes; none: never.
struct AnySave {
  std::vector<SaveDecision> of = {};
};
// Functions of the program, of the step and the last step before it, or of all
// that a decision can be made of. They run on the thread that asks, and may
// throw: see ShouldSave().
struct SaveIf {
  std::function<bool(std::int64_t step, std::optional<std::int64_t> latest)>
      function = {};
};
struct CustomSave {
  std::function<bool(const SaveQuestion&)> function = {};
};

inline const SaveDecision::Rule& SaveDecision::rule() const { return *rule_; }

// OK where the decision can be asked. kInvalidArgument: an interval of 0, a
// function that is not there.
CKPTREE_EXPORT absl::Status Check(const SaveDecision& decision);

// Whether the step in question is to be saved. Depends on nothing but its
// arguments and the decision's own functions. kInvalidArgument as Check();
// kInternal, with what it said, where a function threw.
CKPTREE_EXPORT absl::StatusOr<bool> ShouldSave(const SaveDecision& decision,
                                               const SaveQuestion& question);

}  // namespace ckptree

#endif  // CKPTREE_SAVE_DECISION_H_
