// A call of what a user wrote, which may throw.

#ifndef CKPTREE_CORE_GUARDED_CALL_H_
#define CKPTREE_CORE_GUARDED_CALL_H_

#include <exception>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace ckptree::internal {

// kInternal, with what was thrown.
template <typename Call>
absl::Status GuardedCall(std::string_view name, Call call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrFormat("function '%s' threw: %s", name, error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrFormat("function '%s' threw", name));
  }
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_GUARDED_CALL_H_
