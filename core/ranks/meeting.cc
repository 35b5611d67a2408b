// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/meeting.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "kv/file_system.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "schema/rank_message.h"

namespace ckptree::internal {
namespace {

// Of the first look at an address.
constexpr absl::Duration kFirstLook = absl::Minutes(1);

}  // namespace

std::unique_ptr<MailFolder> FolderOf(const kv::Options& kv_options,
                                     const std::string& directory,
                                     const std::string& job) {
  return std::make_unique<MailFolder>(
      kv_options, absl::StrFormat("%s/%s/%s", directory, kv::kStagingName,
                                  MailFolderName(job)));
}

Meeting::Meeting(std::string directory, const RankOptions& options,
                 const std::shared_ptr<void>& file_system)
    : directory_(std::move(directory)),
      options_(options),
      end_(kv::MonotonicNow() + options.open_deadline),
      refusals_(directory_, options) {
  kv_options_.file_system = file_system;  // Before the store is open.
  if (options_.shared_folder) {
    place_ = FolderOf(kv_options_, directory_, options_.job);
  }
}

bool Meeting::cancelled() const {
  return !options_.shared_folder && options_.store.cancelled != nullptr &&
         options_.store.cancelled();
}

absl::Status Meeting::FindPlace() {
  if (options_.shared_folder) return absl::OkStatus();
  place_ = nullptr;
  remote_ = nullptr;
  const kv::Call call = kv::Call::Within(kFirstLook);
  if (store_ == nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(
        store_, kv::OpenObjectStore(options_.store.remote, {}, call));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                           FindRemoteStore(*store_, call));
  if (!there.has_value()) return absl::OkStatus();
  uuid_ = there->uuid;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::uint64_t> era,
      RankRemote::NewestEra(*store_, there->uuid, options_.job));
  if (!era.has_value()) return absl::OkStatus();
  remote_ = std::make_shared<RankRemote>(store_, there->uuid, options_.job,
                                         *era, options_.deadline);
  place_ = remote_;
  return absl::OkStatus();
}

absl::StatusOr<CoordinatorMail> Meeting::FindCoordinator() {
  Backoff backoff(options_.shared_folder ? MailPace() : kPaceOfRequests);
  absl::Status wrong;
  while (true) {
    CKPTREE_RETURN_IF_ERROR(FindPlace());
    if (place_ != nullptr) {
      CoordinatorMail mail(place_.get());
      while (mail.Poll().ok()) {
        if (mail.open().has_value()) {
          wrong = CheckOpen(*mail.open());
          if (wrong.ok()) {
            found_ = kv::MonotonicNow();
            return mail;
          }
          if (mail.alive()) return wrong;
        } else if (remote_ != nullptr) {
          break;  // It was swept: a newer one has come.
        }
        CKPTREE_RETURN_IF_ERROR(Refused());
        if (kv::MonotonicNow() > end_) return wrong.ok() ? Late(&mail) : wrong;
        if (cancelled()) return absl::CancelledError("opening was cancelled");
        backoff.Pause();
      }
    }
    CKPTREE_RETURN_IF_ERROR(Refused());
    if (kv::MonotonicNow() > end_) return wrong.ok() ? Late(nullptr) : wrong;
    if (cancelled()) return absl::CancelledError("opening was cancelled");
    backoff.Pause();
  }
}

absl::Status Meeting::Refused() {
  return refusals_.Look(kv_options_, uuid_.empty() ? nullptr : store_.get(),
                        uuid_);
}

absl::StatusOr<bool> Meeting::AwaitWelcome(std::uint64_t nonce,
                                           CoordinatorMail* mail) const {
  Backoff backoff(place_->pace());
  while (true) {
    const bool alive = mail->Poll().ok();
    // All have met, also where the coordinator is done already.
    if (const schema::RankMail* const welcome = mail->WelcomeOf(nonce)) {
      CKPTREE_RETURN_IF_ERROR(StatusOf(*welcome));
      return true;
    }
    if (!alive) return false;
    if (IsOver(*mail)) return Late(mail);
    if (cancelled()) return absl::CancelledError("opening was cancelled");
    backoff.Pause();
  }
}

bool Meeting::IsOver(const CoordinatorMail& mail) const {
  const absl::Time now = kv::MonotonicNow();
  if (now <= end_) return false;
  const absl::Duration grace =
      std::clamp(options_.open_deadline, kLeastGrace, kMostGrace);
  // One of a run before says nothing.
  return now - mail.heard() > grace ||
         now > found_ + options_.open_deadline + grace;
}

absl::Status Meeting::CheckOpen(const schema::RankMail& open) const {
  if (open.world == static_cast<std::uint32_t>(options_.world)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "rank %d says that there are %d ranks, the coordinator (pid %d on %s) "
      "says %d",
      options_.rank, options_.world, open.pid, open.host, open.world));
}

absl::Status Meeting::Late(const CoordinatorMail* mail) const {
  if (mail != nullptr && mail->open().has_value() && mail->alive()) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "rank %d of %d: %s did not say within %s that all ranks are there",
        options_.rank, options_.world, mail->Describe(),
        SecondsText(options_.open_deadline)));
  }
  const std::string where = absl::StrFormat(
      "rank %d of %d saw no coordinator of job %s in %s within %s%s: is rank "
      "0 running, and ",
      options_.rank, options_.world, options_.job,
      options_.shared_folder ? directory_
                             : kv::ShownAddress(options_.store.remote),
      SecondsText(options_.open_deadline), OtherJobs());
  return absl::DeadlineExceededError(
      absl::StrCat(where,
                   options_.shared_folder
                       ? "is it the same folder there?"
                       : "has it the same remote, and shared_folder = false? "
                         "One that does not reach the object store cannot "
                         "tell the others: see its own error",
                   refusals_.Before()));
}

std::string Meeting::OtherJobs() const {
  std::string others;
  if (!options_.shared_folder) return others;
  const auto names = kv::ListDirectory(
      kv_options_, absl::StrFormat("%s/%s", directory_, kv::kStagingName));
  if (!names.ok()) return others;
  for (const std::string& name : *names) {
    const auto job = JobOf(name);
    if (!job.has_value() || *job == options_.job) continue;
    absl::StrAppend(&others, others.empty() ? ", but job " : ", ", *job);
  }
  return others;
}

}  // namespace ckptree::internal
