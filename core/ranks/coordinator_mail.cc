// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/coordinator_mail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/monotonic.h"

namespace ckptree::internal {

using schema::MailKind;
using schema::RankMail;

namespace {

// What a rank that is late may still ask for.
constexpr std::size_t kKept = 64;
constexpr std::size_t kKeptTold = 1 << 16;

const RankMail* Find(const std::map<StepCall, RankMail>& mails,
                     const StepCall& call) {
  const auto it = mails.find(call);
  return it == mails.end() ? nullptr : &it->second;
}

}  // namespace

absl::Status CoordinatorMail::Poll() {
  absl::StatusOr<std::vector<RankMail>> mails = reader_->Poll();
  const absl::Time now = kv::MonotonicNow();
  if (absl::IsNotFound(mails.status())) {
    if (!open_.has_value()) return absl::OkStatus();  // Not there yet.
    closed_ = true;
  } else if (!mails.ok()) {
    return absl::OkStatus();  // The next look may find it; or the deadline.
  } else {
    for (RankMail& mail : *mails) {
      switch (mail.kind) {
        case MailKind::kOpen:
          open_ = std::move(mail);
          break;
        case MailKind::kWelcome:
          if (mail.nonce == own_) {
            before_ = newest_;
            // This one the process that is new may still join.
            if (working_.has_value()) before_[working_->first] -= 1;
          }
          welcomes_[mail.nonce] = std::move(mail);
          break;
        case MailKind::kPlan:
          working_ = StepCall(mail.step, mail.nth);
          newest_[mail.step] = std::max(newest_[mail.step], mail.nth);
          plans_[*working_] = std::move(mail);
          break;
        case MailKind::kOutcome: {
          const StepCall call(mail.step, mail.nth);
          if (working_ == call) working_.reset();
          newest_[mail.step] = std::max(newest_[mail.step], mail.nth);
          ++settled_;
          outcomes_[call] = std::move(mail);
          order_.push_back(call);
          if (order_.size() > kKept) {
            plans_.erase(order_.front());
            outcomes_.erase(order_.front());
            order_.pop_front();
          }
          break;
        }
        case MailKind::kTold: {
          if (!keeps_told_) break;
          std::deque<RankMail>& told = told_[mail.topic];
          told.push_back(std::move(mail));
          if (told.size() > kKeptTold) told.pop_front();
          break;
        }
        case MailKind::kClosed:
          closed_ = true;
          break;
        default:
          break;
      }
    }
    if (!mails->empty()) {
      heard_ = now;
      alive_ = polled_;
    }
    polled_ = polled_ || open_.has_value();
    if (mails->empty() && open_.has_value() && now - looked_ > look_again_) {
      looked_ = now;
      closed_ = closed_ || !reader_->StillThere();
    }
  }
  return closed_ ? CoordinatorGone() : absl::OkStatus();
}

absl::Status StatusOf(const RankMail& mail) {
  return absl::Status(static_cast<absl::StatusCode>(mail.code), mail.text);
}

absl::Status CoordinatorGone() {
  return absl::UnavailableError(
      "the coordinator has closed the store, or was started again: open the "
      "group again on every rank");
}

absl::Status OutOfOrder(std::int64_t step) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "the coordinator saves step %d: all ranks have to save the same steps, "
      "in the same order",
      step));
}

std::deque<RankMail> CoordinatorMail::TakeTold(const std::string& topic) {
  const auto told = told_.find(topic);
  if (told == told_.end()) return {};
  return std::exchange(told->second, {});
}

const RankMail* CoordinatorMail::WelcomeOf(std::uint64_t nonce) const {
  const auto it = welcomes_.find(nonce);
  return it == welcomes_.end() ? nullptr : &it->second;
}

std::uint32_t CoordinatorMail::newest(std::int64_t step) const {
  const auto it = newest_.find(step);
  return it == newest_.end() ? 0 : it->second;
}

const RankMail* CoordinatorMail::PlanOf(const StepCall& call) const {
  return Find(plans_, call);
}

const RankMail* CoordinatorMail::OutcomeOf(const StepCall& call) const {
  return Find(outcomes_, call);
}

std::string CoordinatorMail::Describe() const {
  if (!open_.has_value()) return "the coordinator";
  return absl::StrFormat("the coordinator (pid %d on %s, last heard of %s ago)",
                         open_->pid, open_->host,
                         SecondsText(kv::MonotonicNow() - heard_));
}

}  // namespace ckptree::internal
