// SPDX-License-Identifier: Apache-2.0

// Errors that say nothing of what was saved: the object store that it is in
// does not answer, or refuses who asks, or nobody waits for it any more.

#ifndef CKPTREE_CORE_PROCESS_OUT_OF_REACH_H_
#define CKPTREE_CORE_PROCESS_OUT_OF_REACH_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace ckptree::internal {

// What a request to the object store at `address` came to. Where that is no
// answer, a refusal, or kCancelled, the address goes with it; no answer in time
// is kUnavailable then.
absl::Status OfObjectStore(absl::Status status, const std::string& address);

// The address; nothing: `status` is another one. kUnavailable without it is of
// another process.
std::optional<std::string> OutOfReach(const absl::Status& status);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_OUT_OF_REACH_H_
