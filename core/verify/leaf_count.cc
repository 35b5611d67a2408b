// SPDX-License-Identifier: Apache-2.0

#include "core/verify/leaf_count.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "absl/functional/function_ref.h"

namespace ckptree::internal {
namespace {

// None of a leaf that is lost.
LeafMarks MarksOf(const schema::TreeEntry& entry, const BaseLeaf* leaf,
                  std::uint64_t version) {
  if (leaf == nullptr) return {};
  const schema::LeafRecord& record = leaf->record;
  LeafMarks marks;
  marks.changed = record.since_version == version;
  marks.nonfinite = std::any_of(
      record.statistics.begin(), record.statistics.end(),
      [](const Statistics& part) { return part.nan + part.inf > 0; });
  marks.unknown =
      record.statistics.empty() && MayBeNonfinite(entry, record.byte_length);
  return marks;
}

void ForEachLeaf(
    const LoadedParts& parts,
    absl::FunctionRef<void(const schema::TreeEntry&, const BaseLeaf*)> fn) {
  for (const auto& [number, part] : parts) {
    std::size_t ordinal = 0;
    for (const schema::TreeEntry& entry : *part->entries) {
      if (IsLeaf(entry.kind)) fn(entry, part->leaves[ordinal++].get());
    }
  }
}

}  // namespace

LeafTotals CountLeaves(const LoadedParts& parts, std::uint64_t version) {
  if (parts.size() == 1) return CountLeavesByPart(parts, version);
  LeafTotals totals;
  // Those that other parts may have, too.
  std::unordered_map<std::string_view, LeafMarks> split;
  ForEachLeaf(parts, [&](const schema::TreeEntry& entry, const BaseLeaf* leaf) {
    if (leaf == nullptr) {
      split.try_emplace(entry.path);
      return;
    }
    const LeafMarks marks = MarksOf(entry, leaf, version);
    switch (ShareOf(entry, leaf->record.boxes)) {
      case Share::kAll:
        totals.Add(marks);
        break;
      case Share::kSome:
        split[entry.path] |= marks;
        break;
      case Share::kNothing:
        break;
    }
  });
  for (const auto& [path, marks] : split) totals.Add(marks);
  return totals;
}

LeafTotals CountLeavesByPart(const LoadedParts& parts, std::uint64_t version) {
  LeafTotals totals;
  ForEachLeaf(parts, [&](const schema::TreeEntry& entry, const BaseLeaf* leaf) {
    totals.Add(MarksOf(entry, leaf, version));
  });
  return totals;
}

}  // namespace ckptree::internal
