// SPDX-License-Identifier: Apache-2.0

// One step of a store, saved into another as far as it can be read.

#ifndef CKPTREE_CORE_REPAIR_STEP_COPY_H_
#define CKPTREE_CORE_REPAIR_STEP_COPY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/recover.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree::internal {

struct StepCopyOptions {
  std::uint64_t memory_bytes = 0;  // See RecoverOptions.
  bool save = true;  // False: all is read and put together, nothing committed.
  bool whole = false;      // A step of which anything is lost is not saved.
  bool overwrite = false;  // Replaces the step of this number.
  // Added to the lineage of the step.
  std::vector<std::pair<std::string, std::string>> lineage;
  // With `whole`: why the step was not saved where what it lacks is in an
  // object store that does not answer. Null: that is as any other loss.
  absl::Status* out_of_reach = nullptr;
  std::function<bool()> cancelled;                   // Not null.
  std::function<void(std::uint64_t bytes)> on_read;  // Not null.
};

// Saves `from` into `to`. What could not be read stands in the result, and in
// the note of the new step; with no leaf left at all it is not saved. Without
// `save` the result says what would be. An error:
// the new store cannot be written, or kCancelled.
absl::StatusOr<RecoveredStep> CopyStep(const Step& from, Store* to,
                                       const StepCopyOptions& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REPAIR_STEP_COPY_H_
