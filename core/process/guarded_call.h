// SPDX-License-Identifier: Apache-2.0

// A call of what a user wrote, or of what may find no memory: nothing that is
// thrown gets past an engine's thread.

#ifndef CKPTREE_CORE_PROCESS_GUARDED_CALL_H_
#define CKPTREE_CORE_PROCESS_GUARDED_CALL_H_

#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace ckptree::internal {

// The status of `call`, or what was thrown: kResourceExhausted where there was
// no memory, kInternal otherwise. `what` begins the message.
template <typename Call>
absl::Status GuardedStatus(std::string_view what, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: there is no memory", what));
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrFormat("%s threw: %s", what, error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrFormat("%s threw", what));
  }
}

// The same of a call that returns an absl::StatusOr.
template <typename Call>
auto GuardedResult(std::string_view what, Call call) -> decltype(call()) {
  decltype(call()) result = absl::UnknownError("it was not called");
  const absl::Status status = GuardedStatus(what, [&]() -> absl::Status {
    result = call();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return result;
}

template <typename Call>
absl::Status GuardedCall(std::string_view name, Call call) {
  return GuardedStatus(absl::StrFormat("function '%s'", name), [&call] {
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
