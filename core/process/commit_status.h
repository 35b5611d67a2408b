// SPDX-License-Identifier: Apache-2.0

// What a caller is told of a commit.

#ifndef CKPTREE_CORE_PROCESS_COMMIT_STATUS_H_
#define CKPTREE_CORE_PROCESS_COMMIT_STATUS_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_text.h"
#include "kv/database.h"

namespace ckptree::internal {

inline constexpr char kOutcomeUnknown[] = "ckptree/outcome-unknown";

// A commit of `what` that may be there.
inline absl::Status OutcomeUnknown(std::string_view why,
                                   std::string_view what) {
  absl::Status status = absl::UnknownError(
      absl::StrCat(base::ForAbsl(why), ": ", base::ForAbsl(what),
                   " may or may not be there; close the store and open it to "
                   "learn which"));
  status.SetPayload(kOutcomeUnknown, absl::Cord());
  return status;
}

// Other errors of kUnknown, as of a file that cannot be written, say that
// nothing was committed.
inline bool IsOutcomeUnknown(const absl::Status& status) {
  return status.GetPayload(kOutcomeUnknown).has_value();
}

// `what`: "the step", "the change". kAborted: somebody else changed what the
// commit was built on. kUnknown: it may have happened or not.
inline absl::Status CommitStatus(const kv::CommitResult& result,
                                 std::string_view what) {
  switch (result.outcome) {
    case kv::Outcome::kCommitted:
      return absl::OkStatus();
    case kv::Outcome::kConflict:
      return absl::AbortedError(
          absl::StrCat("the store was changed by somebody else (",
                       result.status.message(), "); try again"));
    case kv::Outcome::kUnknown:
      return OutcomeUnknown(absl::StrCat("a write failed in mid-commit (",
                                         result.status.message(), ")"),
                            what);
    case kv::Outcome::kFenced:
    case kv::Outcome::kFailed:
      break;
  }
  return result.status;
}

// Why a store commits nothing more, and what to do; or OK.
inline absl::Status CheckHealth(const kv::Database& database) {
  absl::Status health = database.health();
  if (health.ok()) return health;
  return absl::FailedPreconditionError(absl::StrCat(
      "a write failed before (", health.message(),
      "), and since then the store commits nothing: close it and open it "
      "again"));
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_COMMIT_STATUS_H_
