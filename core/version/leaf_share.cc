// SPDX-License-Identifier: Apache-2.0

#include "core/version/leaf_share.h"

#include <algorithm>
#include <vector>

namespace ckptree::internal {
namespace {

bool HasZero(const std::vector<std::int64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

}  // namespace

Share ShareOf(const schema::TreeEntry& entry,
              std::span<const schema::Box> boxes) {
  if (entry.kind != EntryKind::kArray) return Share::kAll;
  if (HasZero(entry.shape)) return Share::kSome;
  if (boxes.empty()) return Share::kAll;
  if (boxes.size() == 1 && boxes[0].shape == entry.shape) return Share::kAll;
  const bool nothing =
      std::all_of(boxes.begin(), boxes.end(),
                  [](const schema::Box& box) { return HasZero(box.shape); });
  return nothing ? Share::kNothing : Share::kSome;
}

}  // namespace ckptree::internal
