// SPDX-License-Identifier: Apache-2.0

// Whether the parts of several processes make up one step.

#ifndef CKPTREE_CORE_SAVE_PART_UNION_H_
#define CKPTREE_CORE_SAVE_PART_UNION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "schema/limits.h"
#include "schema/part_handoff.h"
#include "schema/tree.h"

namespace ckptree::internal {

// What one part has of the step; all of it outlives the check.
struct PartToUnite {
  std::uint16_t part = 0;  // The number of its rank.
  const std::vector<schema::TreeEntry>* entries = nullptr;  // In tree order.
  // The leaves of which it has less than the whole.
  const std::vector<schema::BoxedLeaf>* boxed = nullptr;
  // See schema::PartLayout::ties.
  const std::vector<std::pair<std::string, std::string>>* ties = nullptr;
};

// kInvalidArgument, naming the leaf and the ranks, where a leaf is given whole
// by two of them, or by boxes that overlap or leave a hole (empty ones do
// neither); where they
// disagree about a path; where a leaf is below another; where a tie has no
// target, or the rank of that has no such tie; where they have more than `most`
// entries together.
absl::Status CheckUnion(const std::vector<PartToUnite>& parts,
                        std::int64_t most = schema::kMaxTreeEntries);

// Two ranks that were not given alike what all ranks have alike.
struct Disagreement {
  std::uint64_t path_checksum = 0;
  std::uint16_t first = 0;
  std::uint16_t second = 0;
  enum class How {
    kMissing,  // `second` does not have it.
    kEntry,    // Another kind, type or shape.
    kValue,
  } how = How::kValue;
};
// Of PartLayout::replicated, by rank; nothing where all are the same. A value
// is compared with that of the first rank that looked at it.
std::optional<Disagreement> CompareReplicated(
    const std::vector<std::pair<std::uint16_t, std::string_view>>& ranks);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_UNION_H_
