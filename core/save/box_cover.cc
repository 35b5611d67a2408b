// SPDX-License-Identifier: Apache-2.0

#include "core/save/box_cover.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/array/chunk_grid.h"

namespace ckptree::internal {

// The boxes lie in the array and apart from each other: where they are all of
// it is a matter of counting.
absl::Status CheckCovered(std::string_view path, const Shape& shape,
                          const std::vector<schema::Box>& boxes) {
  const std::int64_t all = ElementCount(shape).value_or(0);
  std::int64_t covered = 0;
  for (const schema::Box& box : boxes) {
    covered += ElementCount(box.shape).value_or(0);
  }
  if (covered >= all) return absl::OkStatus();
  // What is left of the array, cut by one box after the other.
  schema::Box whole;
  whole.start.assign(shape.size(), 0);
  whole.shape = shape;
  std::vector<schema::Box> left = {whole};
  for (const schema::Box& box : boxes) {
    std::vector<schema::Box> next;
    for (schema::Box& rest : left) {
      if (!BoxesOverlap(rest, box)) {
        next.push_back(std::move(rest));
        continue;
      }
      // Along each dimension what lies before and after the box.
      for (std::size_t d = 0; d < rest.shape.size(); ++d) {
        const std::int64_t from = std::max(rest.start[d], box.start[d]);
        const std::int64_t to = std::min(rest.start[d] + rest.shape[d],
                                         box.start[d] + box.shape[d]);
        schema::Box before = rest, after = rest;
        before.shape[d] = from - rest.start[d];
        after.start[d] = to;
        after.shape[d] = rest.start[d] + rest.shape[d] - to;
        for (schema::Box* part : {&before, &after}) {
          if (part->shape[d] > 0) next.push_back(std::move(*part));
        }
        rest.start[d] = from;
        rest.shape[d] = to - from;
      }
    }
    left = std::move(next);
  }
  const schema::Box& missing = left.front();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: the box at %s of shape %s is missing: %d of %d elements were put",
      Path::Decode(path).value_or(Path()).Text(), ShapeText(missing.start),
      ShapeText(missing.shape), covered, all));
}

absl::Status CheckCovered(const StepContent& content) {
  for (const SourceLeaf& leaf : content.leaves) {
    if (leaf.is_whole()) continue;
    std::vector<schema::Box> boxes;
    for (const SourceBox& box : leaf.boxes()) boxes.push_back(*box.box);
    CKPTREE_RETURN_IF_ERROR(CheckCovered(leaf.path, leaf.entry().shape, boxes));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
