// SPDX-License-Identifier: Apache-2.0

// The leaves of a step some at a time, to show the first before the last are
// read.

#ifndef CKPTREE_CORE_ENGINE_LEAF_PIECES_H_
#define CKPTREE_CORE_ENGINE_LEAF_PIECES_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/step.h"

namespace ckptree::internal {

// What Step::Leaves() gives, in the same order. `step` outlives it. Confined to
// one thread.
class LeafPieces {
 public:
  explicit LeafPieces(const Step& step) : step_(step) {}

  // The next ones: `least` or a few more, but all of a step of several parts,
  // whose order is known only when all are read. None: there are no more.
  absl::StatusOr<std::vector<LeafInfo>> Next(std::size_t least);

  // True of a step of several parts.
  bool come_at_once() const;

 private:
  const Step& step_;
  std::size_t next_page_ = 0;
  bool ended_ = false;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_LEAF_PIECES_H_
