// SPDX-License-Identifier: Apache-2.0

#include "core/remote/far_place.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "kv/monotonic.h"

namespace ckptree::internal {
namespace {

bool IsNoAnswer(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

FarPlace::FarPlace(std::string address, OpenFn open, const FarReader& reader,
                   Times times)
    : address_(std::move(address)),
      open_(std::move(open)),
      times_(times),
      trouble_(std::make_shared<RemoteTrouble>(address_, reader.log,
                                               times.until_told)),
      attendant_(trouble_, reader.cancelled, times.attends) {}

FarPlace::FarPlace(std::shared_ptr<kv::ObjectStore> store,
                   const FarReader& reader, Times times)
    : FarPlace(store->address(), nullptr, reader, times) {
  const absl::MutexLock lock(&mutex_);
  store_ = Attended(std::move(store), trouble_);
}

absl::StatusOr<std::shared_ptr<kv::ObjectStore>> FarPlace::Connected(
    bool was_silent) {
  const kv::Call call = kv::Call::Within(
      was_silent ? times_.of_silent : times_.first, trouble_->token());
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
  const auto enough = [this] {
    return absl::CancelledError(
        absl::StrFormat("reading from %s was cancelled", address_));
  };
  if (attendant_.cancelled()) return enough();
  bool was_silent = false;
  {
    const absl::MutexLock lock(&mutex_);
    if (kv::MonotonicNow() < until_) return silent_;
    was_silent = !silent_.ok();
  }
  const absl::Time asked = kv::MonotonicNow();
  absl::Status status;
  {
    const ReadsAttendant::Turn turn(&attendant_);
    status = AskNow(was_silent, ask);
  }
  // Whatever a request says that was ended, it is no silence.
  if (!status.ok() && attendant_.cancelled()) return enough();
  const absl::MutexLock lock(&mutex_);
  const absl::Time now = kv::MonotonicNow();
  silent_ = IsNoAnswer(status) ? status : absl::OkStatus();
  const bool at_once =
      !absl::IsDeadlineExceeded(status) && now - asked < times_.at_once;
  until_ =
      silent_.ok() || at_once ? absl::InfinitePast() : now + times_.silence;
  return status;
}

}  // namespace ckptree::internal
