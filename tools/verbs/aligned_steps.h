// SPDX-License-Identifier: Apache-2.0

// Several steps read side by side.

#ifndef CKPTREE_TOOLS_VERBS_ALIGNED_STEPS_H_
#define CKPTREE_TOOLS_VERBS_ALIGNED_STEPS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "core/engine/leaf_pieces.h"

namespace ckptree::tools {

// The entries of several steps, one range of the tree order after the other: a
// path that is in a range of one step is in that range of all. The more steps
// there are the shorter are the ranges. The steps outlive it. Confined to one
// thread.
class AlignedSteps {
 public:
  explicit AlignedSteps(const std::vector<const Step*>& steps);

  // Of each step what it has in the next range, in tree order. Of no step there
  // is anything: those were all.
  absl::StatusOr<std::vector<std::vector<LeafInfo>>> Next();

  // True where a step is read as a whole, whatever the range.
  bool any_at_once() const;

  // The last of the steps is not read any further.
  void EndLast() { sources_.back().ended = true; }

 private:
  struct Source {
    internal::LeafPieces pieces;
    std::vector<LeafInfo> read = {};
    std::size_t taken = 0;  // Of `read`.
    bool ended = false;     // Nothing comes behind `read`.
  };

  absl::Status Fill(Source* source) const;

  std::vector<Source> sources_;
  bool begun_ = false;  // The first range was read.
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_ALIGNED_STEPS_H_
