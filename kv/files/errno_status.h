// SPDX-License-Identifier: Apache-2.0

// From errno to statuses.

#ifndef CKPTREE_KV_FILES_ERRNO_STATUS_H_
#define CKPTREE_KV_FILES_ERRNO_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace ckptree::kv {

// ENOENT is kNotFound, ENOSPC and EDQUOT kResourceExhausted, EACCES, EPERM and
// EROFS kPermissionDenied, all others kUnknown.
absl::StatusCode CodeOfErrno(int error);

// What errno says; `context` says what was being done to what, and starts the
// message.
absl::Status ErrnoStatus(int error, std::string_view context);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_ERRNO_STATUS_H_
