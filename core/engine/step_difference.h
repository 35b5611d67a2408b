// SPDX-License-Identifier: Apache-2.0

// In which leaves two steps may differ, before any leaf record is read.

#ifndef CKPTREE_CORE_ENGINE_STEP_DIFFERENCE_H_
#define CKPTREE_CORE_ENGINE_STEP_DIFFERENCE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "core/engine/step_reader.h"

namespace ckptree::internal {

// The body of a step, for the engine's own functions over steps.
struct StepInside {
  static const StepReader& Of(const Step& step) { return *step.reader_; }
  static Step Make(std::unique_ptr<StepReader> reader) {
    return Step(std::move(reader));
  }
};

// What has to be compared, in tree order on both sides: leaves, ties and None.
struct MaybeDifferent {
  std::vector<LeafInfo> before;
  std::vector<LeafInfo> after;
  // Leaves that are in both steps and have the same record: it is written once
  // and never changed, so their values are the same.
  std::uint64_t same = 0;
};

// Of the leaves whose names match `glob`. Two steps of one store share the
// pages of their trees and the runs of their leaf maps wherever nothing
// changed, so these alone are compared there, and what is equal is not read.
// Of two stores all leaves have to be compared. Thread-safe.
absl::StatusOr<MaybeDifferent> FindMaybeDifferent(const StepReader& before,
                                                  const StepReader& after,
                                                  std::string_view glob);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_STEP_DIFFERENCE_H_
