// SPDX-License-Identifier: Apache-2.0

// The end of a call, and pauses between tries.

#ifndef CKPTREE_KV_OBJECTS_WAIT_H_
#define CKPTREE_KV_OBJECTS_WAIT_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv/object_store.h"

namespace ckptree::kv {

// kCancelled or kDeadlineExceeded once the call is to end; `what` begins the
// message.
absl::Status CheckCall(const Call& call, const std::string& what);

// Waits until the call is to end, `pause` at most.
void WaitOrEnd(const Call& call, absl::Duration pause);

// How long to wait before try number `tries` (from 1): at random up to a bound
// that doubles from 0.1 s to 20 s, so that many that failed at once do not come
// back at once; at least `asked`, what the server asked for.
absl::Duration PauseBefore(int tries, absl::Duration asked);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_WAIT_H_
