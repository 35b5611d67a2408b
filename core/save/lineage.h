// SPDX-License-Identifier: Apache-2.0

// Where a save came from.

#ifndef CKPTREE_CORE_SAVE_LINEAGE_H_
#define CKPTREE_CORE_SAVE_LINEAGE_H_

#include <string>
#include <utility>
#include <vector>

namespace ckptree::internal {

// "host", "pid", "command", "directory" of this process; what cannot be found
// out is left out. Texts are cut at 4 KiB.
std::vector<std::pair<std::string, std::string>> ProcessLineage();

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_LINEAGE_H_
