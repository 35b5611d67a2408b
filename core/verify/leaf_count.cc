// SPDX-License-Identifier: Apache-2.0

#include "core/verify/leaf_count.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"

namespace ckptree::internal {
namespace {

bool IsNonfinite(const schema::LeafRecord& record) {
  return std::any_of(
      record.statistics.begin(), record.statistics.end(),
      [](const Statistics& part) { return part.nan + part.inf > 0; });
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
  // Changed and nonfinite, of those that other parts may have, too.
  std::unordered_map<std::string_view, std::pair<bool, bool>> split;
  ForEachLeaf(parts, [&](const schema::TreeEntry& entry, const BaseLeaf* leaf) {
    if (leaf == nullptr) {
      split.try_emplace(entry.path);
      return;
    }
    const schema::LeafRecord& record = leaf->record;
    const bool changed = record.since_version == version;
    const bool nonfinite = IsNonfinite(record);
    switch (ShareOf(entry, record.boxes)) {
      case Share::kAll:
        totals.Add(changed, nonfinite);
        break;
      case Share::kSome: {
        auto& [any_changed, any_nonfinite] = split[entry.path];
        any_changed |= changed;
        any_nonfinite |= nonfinite;
        break;
      }
      case Share::kNothing:
        break;
    }
  });
  for (const auto& [path, of] : split) totals.Add(of.first, of.second);
  return totals;
}

LeafTotals CountLeavesByPart(const LoadedParts& parts, std::uint64_t version) {
  LeafTotals totals;
  ForEachLeaf(parts, [&](const schema::TreeEntry&, const BaseLeaf* leaf) {
    totals.Add(leaf != nullptr && leaf->record.since_version == version,
               leaf != nullptr && IsNonfinite(leaf->record));
  });
  return totals;
}

}  // namespace ckptree::internal
