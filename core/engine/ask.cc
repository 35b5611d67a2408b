// SPDX-License-Identifier: Apache-2.0

#include "core/engine/ask.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "kv/file_watch.h"
#include "kv/monotonic.h"
#include "kv/process_mark.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

// Between two looks at who has the store, and at what another host answered.
constexpr absl::Duration kAskLook = absl::Milliseconds(50);
constexpr absl::Duration kAskPause = absl::Milliseconds(1);
constexpr absl::Duration kAskGrace = absl::Seconds(2);

// As who reads the store may read what is asked of it.
int PermissionsOf(const std::string& directory) {
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) return 0600;
  return static_cast<int>(status.st_mode & 0666);
}

absl::StatusOr<schema::StoreAnswer> AnswerTo(const std::string& id,
                                             kv::PostedRequest* posted) {
  CKPTREE_ASSIGN_OR_RETURN(const std::string bytes,
                           posted->Answer(schema::kMaxRequestBytes));
  CKPTREE_ASSIGN_OR_RETURN(schema::StoreAnswer answer,
                           schema::DecodeStoreAnswer(bytes));
  if (answer.id != id) {
    return absl::DataLossError("the answer is one to another request");
  }
  return answer;
}

}  // namespace

bool Asked::NobodyBetween() const {
  if (posted == nullptr) return false;
  const auto state = posted->Look();
  return state.ok() && *state == kv::PostedRequest::State::kLost &&
         posted->writer() == getpid();
}

absl::StatusOr<std::optional<kv::LockHolder>> WriterOf(
    const std::string& directory) {
  return kv::StoreLock::Probe(directory);
}

absl::StatusOr<Asked> Ask(const std::string& directory,
                          schema::StoreRequest request,
                          const AskOptions& options) {
  using Outcome = Asked::Outcome;
  using State = kv::PostedRequest::State;
  Asked asked;
  request.id = kv::PostedRequest::NewId();
  request.host = kv::HostName();
  request.pid = static_cast<std::uint32_t>(getpid());
  request.user = static_cast<std::uint32_t>(geteuid());
  CKPTREE_ASSIGN_OR_RETURN(
      asked.posted, kv::PostedRequest::Post(directory, request.id,
                                            schema::EncodeStoreRequest(request),
                                            PermissionsOf(directory)));
  kv::FileWatch watch(kv::RequestFolder(directory));
  const absl::Time end = kv::MonotonicNow() + options.timeout;
  while (true) {
    // Before the files: who has gone by now has answered by now, or never will.
    CKPTREE_ASSIGN_OR_RETURN(const auto holder, WriterOf(directory));
    if (holder) asked.writer = *holder;
    CKPTREE_ASSIGN_OR_RETURN(const State state, asked.posted->Look());
    const absl::Duration left = end - kv::MonotonicNow();
    const bool cancelled = options.cancelled && options.cancelled();
    const bool over = left <= absl::ZeroDuration() || cancelled;
    switch (state) {
      case State::kAnswered: {
        CKPTREE_ASSIGN_OR_RETURN(asked.answer,
                                 AnswerTo(request.id, asked.posted.get()));
        asked.outcome = Outcome::kAnswered;
        return asked;
      }
      case State::kWaiting:
        if (left < -kAskGrace) {  // Its file has a name that is nobody's.
          asked.outcome = Outcome::kUnanswered;
          return asked;
        }
        if (holder && !over) break;
        if (!asked.posted->Withdraw()) break;  // It was just taken.
        asked.outcome = holder ? Outcome::kNotTaken : Outcome::kNoWriter;
        return asked;
      case State::kTaken:
        if (!holder || holder->pid != asked.posted->writer()) {
          asked.outcome = Outcome::kWriterGone;
          return asked;
        }
        // What was taken is a matter of a moment, a collection of minutes.
        if (!cancelled && (options.wait_once_taken || left > -kAskGrace)) break;
        asked.outcome = Outcome::kUnanswered;
        return asked;
      case State::kLost:
        asked.outcome = Outcome::kWriterGone;
        return asked;
      case State::kGone:
        asked.outcome = Outcome::kUnanswered;
        return asked;
    }
    watch.Wait(std::clamp(left, kAskPause, kAskLook));
  }
}

}  // namespace ckptree::internal
