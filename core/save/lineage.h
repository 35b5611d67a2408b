// SPDX-License-Identifier: Apache-2.0

// Where a save came from.

#ifndef CKPTREE_CORE_SAVE_LINEAGE_H_
#define CKPTREE_CORE_SAVE_LINEAGE_H_

#include <string>
#include <utility>
#include <vector>

namespace ckptree::internal {

// "host", "pid", "command", "directory" of this process; what cannot be found
// out is left out. Texts are cut at 4 KiB. The command is WithoutSecrets().
std::vector<std::pair<std::string, std::string>> ProcessLineage();

// The words of a command line with a space between. `***` stands for values of
// options and variables whose name says that they are secret, and for the user
// of an address.
std::string WithoutSecrets(const std::vector<std::string>& words);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_LINEAGE_H_
