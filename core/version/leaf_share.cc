// SPDX-License-Identifier: Apache-2.0

#include "core/version/leaf_share.h"

#include <algorithm>
#include <vector>

namespace ckptree::internal {
namespace {

// Of the floats those of four and six bits have no code for either.
bool HasNonfinite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
    case DType::kFloat8E3m4:
    case DType::kFloat8E4m3:
    case DType::kFloat8E4m3b11fnuz:
      return true;
    default:
      return IsComplex(dtype);
  }
}

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

bool MayBeNonfinite(const schema::TreeEntry& entry, std::uint64_t bytes) {
  return bytes > 0 && entry.kind == EntryKind::kArray &&
         HasNonfinite(entry.dtype);
}

}  // namespace ckptree::internal
