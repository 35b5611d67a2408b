// SPDX-License-Identifier: Apache-2.0
// Subtrees among the leaves of a step.

#ifndef CKPTREE_CORE_ENGINE_SUBTREE_H_
#define CKPTREE_CORE_ENGINE_SUBTREE_H_

#include <algorithm>
#include <string>
#include <vector>

#include "ckptree/path.h"
#include "ckptree/step.h"

namespace ckptree::internal {

// The names of the leaves below `root`, in the order of `all`; ties, and nodes
// that hold nothing, are no leaves.
inline std::vector<std::string> LeavesBelow(const std::vector<LeafInfo>& all,
                                            const Path& root) {
  std::vector<std::string> names;
  for (const LeafInfo& leaf : all) {
    const auto& parts = leaf.path.parts();
    if (leaf.is_leaf() && parts.size() > root.parts().size() &&
        std::equal(root.parts().begin(), root.parts().end(), parts.begin())) {
      names.push_back(leaf.name);
    }
  }
  return names;
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_SUBTREE_H_
