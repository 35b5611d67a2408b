// SPDX-License-Identifier: Apache-2.0

// How many leaves a step has of which several parts have something.

#ifndef CKPTREE_CORE_VERSION_LEAF_SHARE_H_
#define CKPTREE_CORE_VERSION_LEAF_SHARE_H_

#include <cstdint>
#include <span>

#include "schema/leaf_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// What a part has of a leaf that is in its tree.
enum class Share {
  kAll,   // No other part has anything of it.
  kSome,  // Others may, too: some boxes, or all of an array without elements.
  kNothing,  // An empty box of an array that has elements elsewhere.
};

// Without boxes the part has the whole.
Share ShareOf(const schema::TreeEntry& entry,
              std::span<const schema::Box> boxes);

// Whether an array of which `bytes` stand here may have a NaN or an Inf there:
// its statistics alone say that it has none. False of what is no array.
bool MayBeNonfinite(const schema::TreeEntry& entry, std::uint64_t bytes);

// What is counted of a leaf, or of what a part has of it.
struct LeafMarks {
  bool changed = false;    // Against the base.
  bool nonfinite = false;  // It has a NaN or an Inf.
  bool unknown = false;    // That is not known: it has no statistics.

  LeafMarks& operator|=(const LeafMarks& other) {
    changed |= other.changed;
    nonfinite |= other.nonfinite;
    unknown |= other.unknown;
    return *this;
  }
};

// Each leaf once, however many parts have something of it.
struct LeafTotals {
  std::uint64_t leaves = 0;
  std::uint64_t changed = 0;
  std::uint64_t nonfinite = 0;
  std::uint64_t unknown = 0;

  void Add(const LeafMarks& leaf) {
    ++leaves;
    changed += leaf.changed ? 1 : 0;
    nonfinite += leaf.nonfinite ? 1 : 0;
    unknown += leaf.unknown ? 1 : 0;
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_LEAF_SHARE_H_
