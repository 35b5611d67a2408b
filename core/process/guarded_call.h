// SPDX-License-Identifier: Apache-2.0

// A call of what a user wrote, or of what may find no memory: nothing that is
// thrown gets past an engine's thread.

#ifndef CKPTREE_CORE_PROCESS_GUARDED_CALL_H_
#define CKPTREE_CORE_PROCESS_GUARDED_CALL_H_

#include <functional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/guarded_result.h"
#include "base/status_text.h"

namespace ckptree::internal {

using base::GuardedResult;
using base::GuardedStatus;

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
