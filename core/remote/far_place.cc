// SPDX-License-Identifier: Apache-2.0

#include "core/remote/far_place.h"

#include <utility>

#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "kv/monotonic.h"

namespace ckptree::internal {
namespace {

bool IsNoAnswer(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

// Looks at what is waited for while anything is.
class FarPlace::Attention {
 public:
  explicit Attention(FarPlace* place) : place_(*place) {
    const absl::MutexLock lock(&place_.mutex_);
    if (place_.asking_++ > 0) return;
    place_.attendant_ =
        std::make_unique<RemoteAttendant>(place_.trouble_, nullptr);
  }
  ~Attention() {
    // Its thread may be in the user's log, which may read: not with the mutex.
    const absl::MutexLock lock(&place_.mutex_);
    if (--place_.asking_ == 0) over_ = std::move(place_.attendant_);
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

 private:
  FarPlace& place_;
  std::unique_ptr<RemoteAttendant> over_;  // Ends behind the lock.
};

FarPlace::FarPlace(std::string address, OpenFn open, const LogSink& log,
                   Times times)
    : address_(std::move(address)),
      open_(std::move(open)),
      times_(times),
      trouble_(
          std::make_shared<RemoteTrouble>(address_, log, times.until_told)) {}

absl::StatusOr<std::shared_ptr<kv::ObjectStore>> FarPlace::Connected(
    bool was_silent) {
  const kv::Call call =
      kv::Call::Within(was_silent ? times_.of_silent : times_.first);
  std::shared_ptr<kv::ObjectStore> store;
  {
    const absl::MutexLock lock(&mutex_);
    store = store_;
  }
  if (store == nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<kv::ObjectStore> opened,
                             open_(address_, call));
    const absl::MutexLock lock(&mutex_);
    if (store_ == nullptr) store_ = Attended(std::move(opened), trouble_);
    store = store_;
  }
  if (was_silent) {
    CKPTREE_RETURN_IF_ERROR(store->Head(kRemoteStoreName, call).status());
  }
  return store;
}

absl::Status FarPlace::AskNow(
    bool was_silent,
    absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask) {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<kv::ObjectStore> store,
                           Connected(was_silent));
  return ask(*store);
}

absl::Status FarPlace::Ask(
    absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask) {
  bool was_silent = false;
  {
    const absl::MutexLock lock(&mutex_);
    if (kv::MonotonicNow() < until_) return silent_;
    was_silent = !silent_.ok();
  }
  const Attention attention(this);
  absl::Status status = AskNow(was_silent, ask);
  const absl::MutexLock lock(&mutex_);
  silent_ = IsNoAnswer(status) ? status : absl::OkStatus();
  until_ =
      silent_.ok() ? absl::InfinitePast() : kv::MonotonicNow() + times_.silence;
  return status;
}

}  // namespace ckptree::internal
