// SPDX-License-Identifier: Apache-2.0

// The status of what a call returned, for code that is the same for both kinds.

#ifndef CKPTREE_BASE_STATUS_OF_H_
#define CKPTREE_BASE_STATUS_OF_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::base {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_STATUS_OF_H_
