// SPDX-License-Identifier: Apache-2.0

#include "tests/trial/tally.h"

#include <iostream>

#include "absl/strings/str_format.h"

namespace ckptree::testing {

void TrialTally::Add(const TrialOutcome& outcome, std::string_view scenario,
                     const FaultPlan& plan) {
  ++trials;
  fired += outcome.fired ? 1 : 0;
  died += outcome.died ? 1 : 0;
  errors += outcome.saw_error ? 1 : 0;
  unknown += outcome.unknown ? 1 : 0;
  indexes += outcome.torn_manifest ? 1 : 0;
  if (outcome.wrongs.empty()) return;
  std::cout << scenario << ", " << testing::Text(plan) << ", at "
            << outcome.fired_at << ":\n";
  bool counted = false;
  for (const std::string& wrong : outcome.wrongs) {
    std::cout << "    " << wrong << "\n";
    if (counted) continue;
    counted = true;
    if (wrong.starts_with("LOST")) {
      ++lost;
    } else if (wrong.starts_with("TORN")) {
      ++torn;
    } else if (wrong.starts_with("UNOPENABLE")) {
      ++unopenable;
    } else {
      ++other;
    }
  }
  std::cout << std::flush;
}

void TrialTally::Add(const TrialTally& tally) {
  trials += tally.trials;
  fired += tally.fired;
  died += tally.died;
  errors += tally.errors;
  unknown += tally.unknown;
  indexes += tally.indexes;
  lost += tally.lost;
  torn += tally.torn;
  unopenable += tally.unopenable;
  other += tally.other;
}

std::string TrialTally::Text() const {
  return absl::StrFormat(
      "%d trials, %d fired, %d died, %d with errors (%d unknown), "
      "%d indexes made anew: %d lost, %d torn, %d unopenable, "
      "%d otherwise wrong",
      trials, fired, died, errors, unknown, indexes, lost, torn, unopenable,
      other);
}

}  // namespace ckptree::testing
