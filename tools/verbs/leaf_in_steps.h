// SPDX-License-Identifier: Apache-2.0

// One leaf in each step of a branch.

#ifndef CKPTREE_TOOLS_VERBS_LEAF_IN_STEPS_H_
#define CKPTREE_TOOLS_VERBS_LEAF_IN_STEPS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/history.h"
#include "ckptree/path.h"
#include "ckptree/step.h"
#include "ckptree/store.h"
#include "core/engine/leaf_past.h"

namespace ckptree::tools {

// What the record of the leaf says in each step, which a history does not tell:
// there steps of one value are one entry, though of these the records may name
// other steps that it is from, and in some it may be a tie. Records are read as
// a history reads them, each once. Confined to one thread.
class LeafInSteps {
 public:
  struct InStep {
    std::int64_t step;
    const internal::PastValue* value;  // Never null.
  };

  // Of the steps that `options` names, where there is a leaf at `path`, or a
  // tie, which has what the leaf has that it is tied to. None where there is no
  // such branch. kCancelled.
  static absl::StatusOr<LeafInSteps> Read(const Store& store, const Path& path,
                                          const HistoryOptions& options);

  // By step number.
  const std::vector<InStep>& steps() const { return steps_; }
  // Whether any of the others has leaves below `path`, which is a subtree
  // there. With what Read() was called with; true where that was stopped.
  bool AnyBelow(const Store& store, const Path& path,
                const HistoryOptions& options) const;

 private:
  std::vector<InStep> steps_;
  // Those that have no value there. Of some that follow each other and have the
  // same leaves, one.
  std::vector<std::int64_t> without_;
  // What these point to: what records say that were read together, and alone.
  std::vector<internal::PastValue> values_;
  std::vector<std::unique_ptr<internal::PastValue>> others_;
  std::vector<std::unique_ptr<const LeafInfo>> leaves_;
  // Who keeps them keeps the store from freeing them one by one.
  std::vector<internal::StepRecordPtr> records_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_LEAF_IN_STEPS_H_
