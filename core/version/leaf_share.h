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

// Each leaf once, however many parts have something of it.
struct LeafTotals {
  std::uint64_t leaves = 0;
  std::uint64_t changed = 0;
  std::uint64_t nonfinite = 0;

  void Add(bool is_changed, bool is_nonfinite) {
    ++leaves;
    changed += is_changed ? 1 : 0;
    nonfinite += is_nonfinite ? 1 : 0;
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_LEAF_SHARE_H_
