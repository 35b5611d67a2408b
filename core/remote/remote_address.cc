// SPDX-License-Identifier: Apache-2.0

#include "core/remote/remote_address.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/left_stores.h"
#include "core/remote/remote_objects.h"
#include "kv/object_store.h"
#include "kv/store_directory.h"

namespace ckptree::internal {

bool IsRemoteAddress(const std::string& where) {
  if (where.starts_with("s3://") || where.starts_with("rados://")) return true;
  if (where.starts_with("gs://")) return !kv::GoogleEndpoint().empty();
  constexpr std::string_view kFile = "file://";
  if (!where.starts_with(kFile)) return false;
  std::error_code error;
  const std::string folder = where.substr(kFile.size());
  return std::filesystem::is_regular_file(kv::Join(folder, kRemoteStoreName),
                                          error) ||
         HasLeftStore(folder);
}

absl::Status CheckHoldsNoObjects(const std::string& directory) {
  const std::string own = kv::AbsolutePath(directory);
  const std::string address = "file://" + own;
  if (!IsRemoteAddress(address)) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found, kv::LookAt(own));
  if (!found.HoldsNoStore()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "no store is in %s itself, which is where one ships to: read that as %s, "
      "and to go on with it name another directory, with that as its remote",
      own, address));
}

}  // namespace ckptree::internal
