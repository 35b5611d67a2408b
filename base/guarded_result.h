// SPDX-License-Identifier: Apache-2.0

// A call that may throw, as where memory runs out, in code that answers with a
// status.

#ifndef CKPTREE_BASE_GUARDED_RESULT_H_
#define CKPTREE_BASE_GUARDED_RESULT_H_

#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_text.h"

namespace ckptree::base {

// What `call` returns, an absl::Status or an absl::StatusOr, or what was
// thrown: kResourceExhausted where there was no memory, or no thread, kInternal
// otherwise. `what` begins the message.
template <typename Call>
auto GuardedResult(std::string_view what, Call call) -> decltype(call()) {
  try {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ForAbsl(what), ": there is no memory"));
    } catch (const std::system_error& error) {
      // As a rule of a thread that cannot be made.
      const bool lack =
          error.code() == std::errc::resource_unavailable_try_again ||
          error.code() == std::errc::not_enough_memory;
      return absl::Status(lack ? absl::StatusCode::kResourceExhausted
                               : absl::StatusCode::kInternal,
                          absl::StrCat(ForAbsl(what), ": ", error.what()));
    } catch (const std::exception& error) {
      return absl::InternalError(
          absl::StrCat(ForAbsl(what), " threw: ", error.what()));
    } catch (...) {
      return absl::InternalError(absl::StrCat(ForAbsl(what), " threw"));
    }
  } catch (const std::bad_alloc&) {
    // Not for a message either.
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

// The same of a call of which any result is a status.
template <typename Call>
absl::Status GuardedStatus(std::string_view what, Call call) {
  return GuardedResult(what, [&call]() -> absl::Status { return call(); });
}

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_GUARDED_RESULT_H_
