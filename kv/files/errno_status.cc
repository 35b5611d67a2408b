// SPDX-License-Identifier: Apache-2.0

#include "kv/files/errno_status.h"

#include <cerrno>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_text.h"

namespace ckptree::kv {

absl::StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::Status ErrnoStatus(int error, std::string_view context) {
  return absl::Status(CodeOfErrno(error),
                      absl::StrCat(base::ForAbsl(context), ": ",
                                   std::generic_category().message(error)));
}

}  // namespace ckptree::kv
