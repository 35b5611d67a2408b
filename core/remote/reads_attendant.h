// SPDX-License-Identifier: Apache-2.0

// Who attends to reads of an object store: one thread for all that follow each
// other.

#ifndef CKPTREE_CORE_REMOTE_READS_ATTENDANT_H_
#define CKPTREE_CORE_REMOTE_READS_ATTENDANT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/remote/attended_store.h"
#include "kv/process_mark.h"

namespace ckptree::internal {

// As a RemoteAttendant of each read, but that its thread, which a read would
// start and join, stays for the next one until nothing was read for a while.
// Thread-safe.
class ReadsAttendant {
 public:
  // `cancelled` may be null: nobody has enough. `trouble` has no other
  // attendant.
  ReadsAttendant(std::shared_ptr<RemoteTrouble> trouble,
                 std::function<bool()> cancelled, absl::Duration stays);
  ~ReadsAttendant();
  ReadsAttendant(const ReadsAttendant&) = delete;
  ReadsAttendant& operator=(const ReadsAttendant&) = delete;

  // Of one read, while it lives.
  class Turn {
   public:
    explicit Turn(ReadsAttendant* attendant) : attendant_(*attendant) {
      attendant_.Begin();
    }
    ~Turn() { attendant_.End(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ReadsAttendant& attendant_;
  };

  // Whether the caller has enough of it.
  bool cancelled() const { return cancelled_ && cancelled_(); }

  // Ends the thread; the next read starts another one.
  void Rest();

  std::uint64_t threads_started() const {
    const absl::MutexLock lock(&mu_);
    return started_;
  }

 private:
  void Begin();
  void End();
  void Attend();

  const std::shared_ptr<RemoteTrouble> trouble_;
  const std::function<bool()> cancelled_;
  const absl::Duration stays_;
  const kv::ProcessMark mark_;
  mutable absl::Mutex mu_;
  int reading_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t begun_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t started_ ABSL_GUARDED_BY(mu_) = 0;
  std::stop_source stop_ ABSL_GUARDED_BY(mu_);  // Of those that read now.
  bool attends_ ABSL_GUARDED_BY(mu_) = false;
  bool rests_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_READS_ATTENDANT_H_
