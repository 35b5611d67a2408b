// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/rank_topic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/process/guarded_call.h"
#include "core/ranks/mailbox.h"
#include "kv/monotonic.h"

namespace ckptree::internal {
namespace {

// How often a wait asks whether to go on.
constexpr absl::Duration kAskEvery = absl::Milliseconds(50);

RankTopic::Word WordOf(schema::RankMail mail) {
  return {std::move(mail.call), mail.step,
          absl::Status(static_cast<absl::StatusCode>(mail.code), mail.text),
          std::move(mail.body)};
}

}  // namespace

absl::Status RankTopic::Tell(const Word& word) {
  schema::RankMail mail;
  mail.kind = schema::MailKind::kTold;
  mail.topic = name_;
  mail.call = word.call;
  mail.step = word.step;
  mail.code = static_cast<std::uint32_t>(word.status.raw_code());
  mail.text = std::string(word.status.message());
  mail.body = word.body;
  return group_->ends().coordinator->Tell(mail);
}

absl::StatusOr<std::optional<RankTopic::Word>> RankTopic::Hear(
    std::string_view call, std::int64_t step,
    const std::function<bool()>& cancelled,
    absl::FunctionRef<bool(const Word&)> passed) {
  Member& member = *group_->ends().member;
  const absl::Time asked = kv::MonotonicNow();
  absl::Time ask_again = asked + kAskEvery;
  Backoff backoff = member.HearingBackoff();
  while (true) {
    absl::Time heard;
    absl::Status alive;
    std::vector<Word> before;
    {
      const absl::MutexLock lock(&mu_);
      // Also of a coordinator that is gone: what it said holds.
      alive = member.Listen(name_, &told_, &heard);
      const auto word = std::find_if(
          told_.begin(), told_.end(), [&](const schema::RankMail& mail) {
            return mail.call == call && mail.step == step;
          });
      if (word != told_.end()) {
        Word found = WordOf(std::move(*word));
        told_.erase(told_.begin(), word + 1);
        return found;
      }
      while (!told_.empty() && told_.front().step <= step) {
        before.push_back(WordOf(std::move(told_.front())));
        told_.pop_front();
      }
    }
    for (const Word& word : before) {
      if (!passed(word)) return std::optional<Word>();
    }
    CKPTREE_RETURN_IF_ERROR(alive);
    const absl::Time now = kv::MonotonicNow();
    const RankOptions& options = group_->options();
    if (now - std::max(asked, heard) > options.deadline) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "rank %d of %d: rank 0 did not come to %s(%d) within %s: %s",
          options.rank, options.world, call, step,
          SecondsText(options.deadline), member.DescribeCoordinator()));
    }
    if (cancelled != nullptr && now > ask_again) {
      ask_again = now + kAskEvery;
      bool stop = false;
      CKPTREE_RETURN_IF_ERROR(
          GuardedCall("function 'cancelled'", [&] { stop = cancelled(); }));
      if (stop) {
        return absl::CancelledError(
            absl::StrFormat("%s(%d) was stopped", call, step));
      }
    }
    backoff.Pause();
  }
}

absl::Status RankTopic::Notice(const absl::Status& status) {
  return group_->ends().member->Notice(name_, status);
}

absl::StatusOr<bool> RankTopic::Noticed() {
  return group_->ends().coordinator->Noticed(name_);
}

}  // namespace ckptree::internal
