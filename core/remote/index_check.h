// SPDX-License-Identifier: Apache-2.0

// Whether the indexes of rows in an object store are as they were written. Who
// opens a store passes over one that is not, and reads the commits.

#ifndef CKPTREE_CORE_REMOTE_INDEX_CHECK_H_
#define CKPTREE_CORE_REMOTE_INDEX_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// Reads the indexes that stay, and the runs of the newest: those of the other
// may be deleted. Adds a line to `found` for each that is damaged, and for runs
// that are damaged or gone; the status is of all else.
absl::Status CheckIndexes(kv::ObjectStore& store, const std::string& uuid,
                          const kv::Call& call,
                          std::vector<std::string>* found);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_INDEX_CHECK_H_
