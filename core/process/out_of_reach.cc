// SPDX-License-Identifier: Apache-2.0

#include "core/process/out_of_reach.h"

#include "absl/strings/cord.h"
#include "base/status_text.h"

namespace ckptree::internal {
namespace {

constexpr char kAddress[] = "ckptree/out-of-reach";

}  // namespace

absl::Status OfObjectStore(absl::Status status, const std::string& address) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      status = base::WithText(status, absl::StatusCode::kUnavailable,
                              status.message());
      break;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnavailable:
      break;
    default:
      return status;
  }
  status.SetPayload(kAddress, absl::Cord(address));
  return status;
}

std::optional<std::string> OutOfReach(const absl::Status& status) {
  const auto address = status.GetPayload(kAddress);
  if (!address.has_value()) return std::nullopt;
  return std::string(*address);
}

}  // namespace ckptree::internal
