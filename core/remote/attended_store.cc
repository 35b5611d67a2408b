// SPDX-License-Identifier: Apache-2.0

#include "core/remote/attended_store.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_of.h"
#include "core/process/guarded_call.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/timed_wait.h"

namespace ckptree::internal {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);

// What `request` returns; `how` says how it ended. One that throws was not
// answered, and is waited for no more.
template <typename Request, typename How>
auto Asked(RemoteTrouble& trouble, std::string what, Request&& request,
           const How& how) {
  const std::uint64_t id = trouble.Began(std::move(what));
  absl::Cleanup thrown = [&trouble, id] { trouble.Forget(id); };
  auto result = std::forward<Request>(request)();
  std::move(thrown).Cancel();
  trouble.Ended(id, how(result));
  return result;
}

class AttendedStore : public kv::ObjectStore {
 private:
  template <typename Request>
  auto Attend(std::string what, Request&& request) {
    return Asked(*trouble_, std::move(what), std::forward<Request>(request),
                 [](const auto& result) { return base::StatusOf(result); });
  }

 public:
  AttendedStore(std::shared_ptr<kv::ObjectStore> store,
                std::shared_ptr<RemoteTrouble> trouble)
      : store_(std::move(store)), trouble_(std::move(trouble)) {}

  const std::string& address() const override { return store_->address(); }

  kv::Call Ending(const kv::Call& call) const override {
    return Attended(call);
  }
  void NoteDamagedAnswer(const std::string& what) override {
    trouble_->NoteDamagedAnswer(what);
  }

  absl::StatusOr<kv::PutAnswer> PutIfAbsent(const std::string& name,
                                            std::string_view bytes,
                                            const std::string& write_id,
                                            const kv::Call& call) override {
    return Asked(
        *trouble_, "creating " + name,
        [&] {
          return store_->PutIfAbsent(name, bytes, write_id, Attended(call));
        },
        [](const absl::StatusOr<kv::PutAnswer>& answer) {
          return answer.ok() ? answer->reason : answer.status();
        });
  }
  absl::Status Put(const std::string& name, const kv::ObjectSource& source,
                   const kv::Call& call) override {
    return Attend("writing " + name,
                  [&] { return store_->Put(name, source, Attended(call)); });
  }
  absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                       std::uint64_t offset,
                                       std::span<std::byte> into,
                                       const kv::Call& call) override {
    return Attend("reading " + name, [&] {
      return store_->GetRange(name, offset, into, Attended(call));
    });
  }
  absl::StatusOr<std::optional<kv::ObjectInfo>> Head(
      const std::string& name, const kv::Call& call) override {
    return Attend("looking for " + name,
                  [&] { return store_->Head(name, Attended(call)); });
  }
  absl::StatusOr<kv::ObjectPage> List(const std::string& prefix,
                                      const std::string& after,
                                      const kv::Call& call) override {
    return Attend("listing " + prefix,
                  [&] { return store_->List(prefix, after, Attended(call)); });
  }
  absl::Status Delete(std::span<const std::string> names,
                      const kv::Call& call) override {
    return Attend("deleting",
                  [&] { return store_->Delete(names, Attended(call)); });
  }
  absl::StatusOr<std::vector<kv::Upload>> ListUploads(
      const std::string& prefix, const kv::Call& call) override {
    return Attend("listing uploads",
                  [&] { return store_->ListUploads(prefix, Attended(call)); });
  }
  absl::Status AbortUpload(const kv::Upload& upload,
                           const kv::Call& call) override {
    return Attend("ending an upload of " + upload.name,
                  [&] { return store_->AbortUpload(upload, Attended(call)); });
  }

 private:
  kv::Call Attended(const kv::Call& call) const {
    kv::Call attended = call;
    if (!attended.cancelled.stop_possible()) {
      attended.cancelled = trouble_->token();
    }
    attended.heard = [trouble = trouble_](const absl::Status& why) {
      trouble->Heard(why);
    };
    return attended;
  }

  const std::shared_ptr<kv::ObjectStore> store_;
  const std::shared_ptr<RemoteTrouble> trouble_;
};

}  // namespace

absl::Status RemoteTrouble::Now() const {
  if (!heard_.ok()) return heard_;
  // The oldest of all that wait.
  if (waiting_.empty()) return absl::OkStatus();
  const Waiting& oldest = waiting_.begin()->second;
  const absl::Duration waits = kv::MonotonicNow() - oldest.since;
  if (waits < patience_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "no answer for %d s: %s", absl::ToInt64Seconds(waits), oldest.what));
}

absl::Status RemoteTrouble::now() const {
  const absl::MutexLock lock(&mu_);
  return Now();
}

absl::Duration RemoteTrouble::silent() const {
  const absl::MutexLock lock(&mu_);
  absl::Time since = since_.value_or(absl::InfiniteFuture());
  if (!waiting_.empty()) {
    since = std::min(since, waiting_.begin()->second.since);
  }
  return std::max(kv::MonotonicNow() - since, absl::ZeroDuration());
}

std::optional<std::string> RemoteTrouble::ToTell() {
  const absl::Status now = Now();
  if (told_ || now.ok()) return std::nullopt;
  if (since_.has_value() && kv::MonotonicNow() - *since_ < patience_) {
    return std::nullopt;
  }
  told_ = true;
  return absl::StrCat(address_, " is waited for: ", std::string(now.message()));
}

void RemoteTrouble::Look() {
  std::optional<std::string> text;
  {
    const absl::MutexLock lock(&mu_);
    text = ToTell();
  }
  if (text.has_value()) {
    logger_.Log(LogSeverity::kWarning, "remote", *text);
  }
}

void RemoteTrouble::Heard(const absl::Status& why) {
  {
    const absl::MutexLock lock(&mu_);
    heard_ = why;
    if (!since_.has_value()) since_ = kv::MonotonicNow();
  }
  Look();
}

void RemoteTrouble::NoteDamagedAnswer(const std::string& what) {
  logger_.Log(LogSeverity::kWarning, "remote",
              absl::StrCat("an answer of ", address_,
                           " was damaged on its way, and the next one was "
                           "whole: ",
                           what));
}

std::uint64_t RemoteTrouble::Began(std::string what) {
  const absl::MutexLock lock(&mu_);
  waiting_.emplace(++calls_, Waiting{std::move(what), kv::MonotonicNow()});
  return calls_;
}

void RemoteTrouble::Forget(std::uint64_t call) {
  const absl::MutexLock lock(&mu_);
  waiting_.erase(call);
}

void RemoteTrouble::Ended(std::uint64_t call, const absl::Status& how) {
  const bool no_answer =
      absl::IsUnavailable(how) || absl::IsDeadlineExceeded(how) ||
      absl::IsUnauthenticated(how) || absl::IsPermissionDenied(how);
  {
    const absl::MutexLock lock(&mu_);
    waiting_.erase(call);
    if (no_answer) {
      heard_ = how;
      if (!since_.has_value()) since_ = kv::MonotonicNow();
      return;
    }
    heard_ = absl::OkStatus();
    since_.reset();
    // Who has enough of it was answered nothing.
    if (!std::exchange(told_, false) || absl::IsCancelled(how)) return;
  }
  logger_.Log(LogSeverity::kInfo, "remote",
              absl::StrCat(address_, " answers again"));
}

std::stop_token RemoteTrouble::token() const {
  const absl::MutexLock lock(&mu_);
  return attending_.empty() ? std::stop_token() : attending_.back();
}

void RemoteTrouble::Attend(std::stop_token token) {
  const absl::MutexLock lock(&mu_);
  attending_.push_back(std::move(token));
}

void RemoteTrouble::Leave(const std::stop_token& token) {
  const absl::MutexLock lock(&mu_);
  std::erase(attending_, token);
}

RemoteAttendant::RemoteAttendant(std::shared_ptr<RemoteTrouble> trouble,
                                 std::function<bool()> cancelled)
    : trouble_(std::move(trouble)) {
  trouble_->Attend(stop_.get_token());
  thread_ =
      std::jthread([this, cancelled = GuardedQuestion(std::move(cancelled))](
                       const std::stop_token& over) {
        kv::TimedNotice ended;
        const std::stop_callback wake(over, [&ended] { ended.Give(); });
        while (!ended.WaitFor(kLook)) {
          if (cancelled && cancelled()) stop_.request_stop();
          GuardedCall("Look", [this] { trouble_->Look(); }).IgnoreError();
        }
      });
}

RemoteAttendant::~RemoteAttendant() {
  thread_.request_stop();
  thread_.join();
  trouble_->Leave(stop_.get_token());
}

std::unique_ptr<kv::ObjectStore> Attended(
    std::shared_ptr<kv::ObjectStore> store,
    std::shared_ptr<RemoteTrouble> trouble) {
  return std::make_unique<AttendedStore>(std::move(store), std::move(trouble));
}

absl::StatusOr<std::unique_ptr<kv::ObjectStore>> ConnectAttended(
    const std::string& address, RemoteTrouble& trouble, const kv::Call& call) {
  kv::Call first = call;
  if (!first.cancelled.stop_possible()) first.cancelled = trouble.token();
  return Asked(
      trouble, "connecting",
      [&] {
        return kv::OpenObjectStore(address, kv::ObjectStoreOptions(), first);
      },
      [](const auto& store) { return store.status(); });
}

absl::StatusOr<std::unique_ptr<kv::ObjectStore>> OpenAttended(
    const std::string& address, std::shared_ptr<RemoteTrouble> trouble,
    const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<kv::ObjectStore> store,
                           ConnectAttended(address, *trouble, call));
  return Attended(std::move(store), std::move(trouble));
}

}  // namespace ckptree::internal
