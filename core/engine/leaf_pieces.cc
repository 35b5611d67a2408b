// SPDX-License-Identifier: Apache-2.0

#include "core/engine/leaf_pieces.h"

#include "core/engine/step_difference.h"
#include "core/engine/step_reader.h"

namespace ckptree::internal {

bool LeafPieces::come_at_once() const {
  return StepInside::Of(step_).parts().size() != 1;
}

absl::StatusOr<std::vector<LeafInfo>> LeafPieces::Next(std::size_t least) {
  if (ended_) return std::vector<LeafInfo>();
  const StepReader& reader = StepInside::Of(step_);
  if (come_at_once()) {
    ended_ = true;
    return reader.Leaves("");
  }
  const std::vector<schema::TreePageRef>& pages =
      reader.parts()[0].tree->root().pages;
  const std::size_t begin = next_page_;
  std::size_t entries = 0;
  while (next_page_ < pages.size() && entries < least) {
    entries += pages[next_page_++].entry_count;
  }
  ended_ = next_page_ == pages.size();
  return reader.LeavesOfPages(begin, next_page_);
}

}  // namespace ckptree::internal
