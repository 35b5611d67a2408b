// SPDX-License-Identifier: Apache-2.0

#include "tools/output/failure.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"

namespace ckptree::tools {
namespace {

constexpr char kHintUrl[] = "ckptree.tools/hint";
constexpr char kPlaceUrl[] = "ckptree.tools/place";

}  // namespace

absl::Status WithHint(absl::Status status, std::string_view hint) {
  if (!status.ok() && !status.GetPayload(kHintUrl)) {
    status.SetPayload(kHintUrl, absl::Cord(std::string(hint)));
  }
  return status;
}

std::string HintOf(const absl::Status& status) {
  if (const auto hint = status.GetPayload(kHintUrl)) {
    return std::string(*hint);
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "`ckptree log` lists the steps, `ckptree ls REV` the keys";
    case absl::StatusCode::kUnavailable:
      return "another process has the store: wait for it, or use --wait "
             "SECONDS";
    case absl::StatusCode::kDataLoss:
      return "`ckptree verify` lists what is damaged; in a directory `ckptree "
             "repair` mends it in its place, `ckptree recover` saves the rest "
             "elsewhere";
    case absl::StatusCode::kResourceExhausted:
      return "free some space or memory and try again";
    case absl::StatusCode::kInvalidArgument:
      return "`ckptree help` shows the commands, `ckptree help COMMAND` one of "
             "them";
    case absl::StatusCode::kUnimplemented:
      return "a newer ckptree may know it; this one is shown by `ckptree "
             "version`";
    case absl::StatusCode::kInternal:
      return "this is a bug of ckptree: please report it with the command";
    case absl::StatusCode::kPermissionDenied:
      return "run this as the user who made the store; what is on a disk that "
             "is mounted read-only can only be read";
    case absl::StatusCode::kCancelled:
      return "";
    default:
      return "`ckptree doctor` looks at the store and at what is around it";
  }
}

absl::Status WithPlace(absl::Status status, std::string_view lines) {
  status.SetPayload(kPlaceUrl, absl::Cord(std::string(lines)));
  return status;
}

std::string PlaceOf(const absl::Status& status) {
  const auto place = status.GetPayload(kPlaceUrl);
  return place ? std::string(*place) : "";
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitBusy;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnknown;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

absl::Status FileError(int error, std::string_view what) {
  const std::string text =
      absl::StrFormat("%s: %s", what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return WithHint(absl::ResourceExhaustedError(text),
                    error == EFBIG ? "`ulimit -f` is less than it takes"
                                   : "free some space there and try again");
  }
  return WithHint(absl::UnknownError(text), "name a place you may write to");
}

}  // namespace ckptree::tools
