// SPDX-License-Identifier: Apache-2.0

// The counts of a sweep.

#ifndef CKPTREE_TESTS_TRIAL_TALLY_H_
#define CKPTREE_TESTS_TRIAL_TALLY_H_

#include <string>
#include <string_view>

#include "tests/fault/plan.h"
#include "tests/trial/scenario.h"

namespace ckptree::testing {

struct TrialTally {
  int trials = 0;
  int fired = 0;
  int died = 0;
  int errors = 0;   // Trials in which an action failed.
  int unknown = 0;  // ... with an unknown outcome.
  int indexes = 0;  // Made anew after a power cut.
  int lost = 0;
  int torn = 0;
  int unopenable = 0;
  int other = 0;  // Anything else that is wrong.

  // Adds the outcome; prints what is wrong, with the plan that repeats it.
  void Add(const TrialOutcome& outcome, std::string_view scenario,
           const FaultPlan& plan);
  void Add(const TrialTally& tally);
  bool clean() const { return lost + torn + unopenable + other == 0; }
  std::string Text() const;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TRIAL_TALLY_H_
