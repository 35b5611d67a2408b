// SPDX-License-Identifier: Apache-2.0

#include "kv/files/status.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_text.h"
#include "kv/files/errno_status.h"
#include "rocksdb/status.h"

namespace ckptree::kv {
namespace {

// A payload without content: the read met a table that is gone.
constexpr absl::string_view kGone = "ckptree/table-is-gone";

// RocksDB tells a missing file and a full disk by codes of its own, and keeps
// of any other errno only the text.
absl::StatusCode CodeOfIoError(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  for (const int error : {EACCES, EPERM, EROFS, EDQUOT}) {
    if (text.find(std::generic_category().message(error)) != text.npos) {
      return CodeOfErrno(error);
    }
  }
  return absl::StatusCode::kUnknown;
}

absl::StatusCode CodeOf(const rocksdb::Status& status) {
  using rocksdb::Status;
  // The subcode first: a full disk comes as several codes.
  switch (status.subcode()) {
    case Status::kNoSpace:
    case Status::kSpaceLimit:
    case Status::kMemoryLimit:
      return absl::StatusCode::kResourceExhausted;
    case Status::kPathNotFound:
      return absl::StatusCode::kNotFound;
    default:
      break;
  }
  switch (status.code()) {
    case Status::kOk:
      return absl::StatusCode::kOk;
    case Status::kNotFound:
      return absl::StatusCode::kNotFound;
    case Status::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case Status::kColumnFamilyDropped:
    case Status::kExpired:
      return absl::StatusCode::kFailedPrecondition;
    case Status::kCorruption:
      return absl::StatusCode::kDataLoss;
    case Status::kBusy:
    case Status::kTryAgain:
      return absl::StatusCode::kUnavailable;
    case Status::kNotSupported:
      return absl::StatusCode::kUnimplemented;
    case Status::kAborted:
      return absl::StatusCode::kAborted;
    case Status::kTimedOut:
      return absl::StatusCode::kDeadlineExceeded;
    case Status::kShutdownInProgress:
      return absl::StatusCode::kCancelled;
    case Status::kIOError:
      return CodeOfIoError(status);
    default:
      return absl::StatusCode::kInternal;
  }
}

bool SaysUnreadable(std::string_view text) {
  return std::ranges::any_of(std::array{EIO, EISDIR}, [text](int error) {
    return text.find(std::generic_category().message(error)) != text.npos;
  });
}

}  // namespace

absl::Status ToStatus(const rocksdb::Status& status, std::string_view context) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(CodeOf(status), absl::StrCat(base::ForAbsl(context), ": ",
                                                   status.ToString()));
}

absl::Status ToReadStatus(const rocksdb::Status& status,
                          std::string_view context) {
  const bool gone = status.IsPathNotFound();
  const std::string text = status.ToString();
  if (!gone && !(status.IsIOError() && SaysUnreadable(text))) {
    return ToStatus(status, context);
  }
  absl::Status damage =
      absl::DataLossError(absl::StrCat(base::ForAbsl(context), ": ", text));
  if (gone) damage.SetPayload(kGone, absl::Cord());
  return damage;
}

bool IsUnreadable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnknown &&
         SaysUnreadable({status.message().data(), status.message().size()});
}

bool IsGone(const absl::Status& status) {
  return status.GetPayload(kGone).has_value();
}

}  // namespace ckptree::kv
