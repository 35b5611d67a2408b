// SPDX-License-Identifier: Apache-2.0

// How long a request for a message between ranks may take.

#ifndef CKPTREE_CORE_RANKS_MESSAGE_CALLS_H_
#define CKPTREE_CORE_RANKS_MESSAGE_CALLS_H_

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_of.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// Waits once in full for an object store that does not answer: what a rank
// wants of it then is one request after the other, by several threads, and each
// would take as long. Until it answers again, a request has a tenth of the
// time; after some such times one has all of it again, for a store that is
// slow.
//
// Thread-safe.
class MessageCalls {
 public:
  // Of one request, with all its repetitions.
  static constexpr absl::Duration kMost = absl::Seconds(20);

  // Who hears nothing for `deadline` counts others as lost: no request has
  // more.
  explicit MessageCalls(absl::Duration deadline)
      : most_(std::clamp(deadline, absl::Seconds(1), kMost)) {}

  // Calls `request` with what it may take; it returns a status, or has one.
  template <typename Request>
  auto Make(Request&& request) {
    const kv::Call call = Begin();
    auto result = std::forward<Request>(request)(call);
    Ended(call, base::StatusOf(result));
    return result;
  }

 private:
  kv::Call Begin();
  void Ended(const kv::Call& call, const absl::Status& status);

  const absl::Duration most_;
  absl::Mutex mu_;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time full_again_ ABSL_GUARDED_BY(mu_);  // While it is silent.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_MESSAGE_CALLS_H_
