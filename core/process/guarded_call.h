// SPDX-License-Identifier: Apache-2.0

// A call of what a user wrote, or of what may find no memory: nothing that is
// thrown gets past an engine's thread.

#ifndef CKPTREE_CORE_PROCESS_GUARDED_CALL_H_
#define CKPTREE_CORE_PROCESS_GUARDED_CALL_H_

#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_text.h"

namespace ckptree::internal {

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
          absl::StrCat(base::ForAbsl(what), ": there is no memory"));
    } catch (const std::system_error& error) {
      // As a rule of a thread that cannot be made.
      const bool lack =
          error.code() == std::errc::resource_unavailable_try_again ||
          error.code() == std::errc::not_enough_memory;
      return absl::Status(
          lack ? absl::StatusCode::kResourceExhausted
               : absl::StatusCode::kInternal,
          absl::StrCat(base::ForAbsl(what), ": ", error.what()));
    } catch (const std::exception& error) {
      return absl::InternalError(
          absl::StrCat(base::ForAbsl(what), " threw: ", error.what()));
    } catch (...) {
      return absl::InternalError(absl::StrCat(base::ForAbsl(what), " threw"));
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

template <typename Call>
absl::Status GuardedCall(std::string_view name, Call call) {
  return GuardedStatus(absl::StrCat("function '", base::ForAbsl(name), "'"),
                       [&call] {
                         call();
                         return absl::OkStatus();
                       });
}

// Asks a caller whether it has enough, on a thread of the engine: who throws
// has. Null stays null.
inline std::function<bool()> GuardedQuestion(std::function<bool()> enough) {
  if (!enough) return nullptr;
  return [enough = std::move(enough)] {
    bool answer = true;
    GuardedCall("cancelled", [&] { answer = enough(); }).IgnoreError();
    return answer;
  };
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_GUARDED_CALL_H_
