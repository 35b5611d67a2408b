// SPDX-License-Identifier: Apache-2.0

// Where a store is whose steps are saved elsewhere; in local_path.cc.

#ifndef CKPTREE_CORE_ENGINE_SOURCE_PATH_H_
#define CKPTREE_CORE_ENGINE_SOURCE_PATH_H_

#include <string>

#include "absl/status/statusor.h"

namespace ckptree::internal {

// As LocalPath(). The error of an address says that its steps are copied: the
// files that are put together again are not there.
absl::StatusOr<std::string> SourcePath(const std::string& where);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_SOURCE_PATH_H_
