// SPDX-License-Identifier: Apache-2.0

#include "kv/files/errno_status.h"

#include <cerrno>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

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
  // absl::StrFormat ends the process where its text finds no memory.
  return absl::Status(
      CodeOfErrno(error),
      absl::StrCat(absl::string_view(context.data(), context.size()), ": ",
                   std::generic_category().message(error)));
}

}  // namespace ckptree::kv
