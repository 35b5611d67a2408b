// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_CORE_RANKS_HEARTBEAT_H_
#define CKPTREE_CORE_RANKS_HEARTBEAT_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/ranks/mailbox.h"

namespace ckptree::internal {

// Says for a process that works on a step that it is there, however long a
// write or a commit takes: by a thread of its own, which a process that is
// stopped does not have.
//
// Thread-safe.
class Heartbeat {
 public:
  // `mail` outlives this. `idle`, which may be null, is called as often while
  // it does not beat, on the thread of this.
  Heartbeat(MailWriter* mail, absl::Duration every,
            std::function<void()> idle = nullptr);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // It beats while there are more calls of Begin() than of End().
  void Begin();
  void End();

 private:
  void Loop();

  MailWriter* const mail_;
  const absl::Duration every_;
  const std::function<void()> idle_;
  absl::Mutex mu_;
  int working_ ABSL_GUARDED_BY(mu_) = 0;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_HEARTBEAT_H_
