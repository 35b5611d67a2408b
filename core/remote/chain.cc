// SPDX-License-Identifier: Apache-2.0

#include "core/remote/chain.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/process/guarded_call.h"
#include "core/remote/remote_objects.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "schema/limits.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteCommit;

// Commits that are read one by one before many are asked for at once.
constexpr int kReadAlone = 4;

// How often a commit that does not read as one is looked at.
constexpr int kMostLooks = 4;
constexpr absl::Duration kLookPause = absl::Milliseconds(500);

void Pause(absl::Duration time, const std::stop_token& stop) {
  std::mutex alone;
  std::condition_variable_any never;
  std::unique_lock lock(alone);
  never.wait_for(lock, stop, absl::ToChronoMilliseconds(time),
                 [] { return false; });
}

RemoteCommit WithoutRows(RemoteCommit commit) {
  commit.rows.clear();
  commit.rows_objects.clear();
  commit.segments.clear();
  return commit;
}

}  // namespace

RemoteChain::RemoteChain(kv::ObjectStore* store, std::string uuid,
                         std::size_t most_at_once)
    : store_(store), uuid_(std::move(uuid)), most_at_once_(most_at_once) {}

absl::StatusOr<std::optional<std::string>> RemoteChain::Get(
    std::uint64_t ordinal, const kv::Call& call) const {
  return GetObject(*store_, RemoteCommitName(uuid_, ordinal),
                   kv::ObjectStore::kMaxConditionalBytes, call);
}

absl::StatusOr<RemoteCommit> RemoteChain::Check(
    std::uint64_t ordinal, const std::string& bytes) const {
  absl::StatusOr<RemoteCommit> commit = schema::DecodeRemoteCommit(bytes);
  const auto wrong = [&](absl::StatusCode code, std::string_view what) {
    return absl::Status(
        code,
        absl::StrFormat("commit %d in %s (%s): %s", ordinal, store_->address(),
                        RemoteCommitName(uuid_, ordinal), what));
  };
  if (!commit.ok()) {
    return wrong(commit.status().code(),
                 std::string(commit.status().message()));
  }
  if (commit->uuid != uuid_ || commit->ordinal != ordinal) {
    return wrong(absl::StatusCode::kDataLoss, "it is another store's");
  }
  if (commit->before != hash_) {
    return wrong(absl::StatusCode::kDataLoss,
                 "it does not follow the one before it");
  }
  const bool is_open = commit->shape == RemoteCommit::Shape::kOpen;
  if (!is_open && (!open_.has_value() || commit->era != open_->ordinal)) {
    return wrong(absl::StatusCode::kDataLoss,
                 "its writer had lost the store by then");
  }
  if (commit->ceiling < ceiling_) {
    return wrong(absl::StatusCode::kDataLoss, "its version ceiling is lower");
  }
  return commit;
}

absl::StatusOr<RemoteCommit> RemoteChain::CheckAgain(
    std::uint64_t ordinal, bool any_may_come, std::string* bytes,
    const kv::Call& call) const {
  absl::StatusOr<RemoteCommit> commit = Check(ordinal, *bytes);
  for (int looks = 1; absl::IsDataLoss(commit.status()); ++looks) {
    if (looks == kMostLooks) {
      return absl::UnavailableError(commit.status().message());
    }
    Pause(kLookPause, store_->Ending(call).cancelled);
    CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> again,
                             Get(ordinal, call));
    if (!again.has_value()) {
      return absl::UnavailableError(absl::StrFormat("%s; then it was not there",
                                                    commit.status().message()));
    }
    if (*again == *bytes) {
      const bool none = !schema::DecodeRemoteCommit(*bytes).ok();
      if (none && any_may_come) {
        return absl::UnavailableError(commit.status().message());
      }
      return absl::DataLossError(
          absl::StrFormat("%s. %s", commit.status().message(), kMendChain));
    }
    *bytes = *std::move(again);
    const std::string damaged(commit.status().message());
    commit = Check(ordinal, *bytes);
    if (commit.ok()) store_->NoteDamagedAnswer(damaged);
  }
  return commit;
}

void RemoteChain::Saw(RemoteCommit commit, const base::Digest& hash) {
  ordinal_ = commit.ordinal;
  hash_ = hash;
  ceiling_ = commit.ceiling;
  newest_ = WithoutRows(std::move(commit));
  if (newest_->shape == RemoteCommit::Shape::kOpen) open_ = newest_;
}

void RemoteChain::Fence(const RemoteCommit& by) {
  fenced_ = absl::FailedPreconditionError(absl::StrFormat(
      "another process took %s over: host %s, pid %d, at commit %d. What this "
      "one has not shipped stays in its directory; nothing more of it is "
      "committed there",
      store_->address(), by.host, by.pid, by.ordinal));
}

void RemoteChain::Forget() {
  ordinal_ = ceiling_ = 0;
  hash_ = {};
  newest_.reset();
  open_.reset();
}

absl::Status RemoteChain::GoOnFrom(std::uint64_t ordinal,
                                   const base::Digest& hash,
                                   const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                           Get(ordinal, call));
  if (bytes.has_value() && base::DigestOf(*bytes) != hash) {
    // The answer may have been damaged on its way.
    CKPTREE_ASSIGN_OR_RETURN(bytes, Get(ordinal, call));
    if (bytes.has_value() && base::DigestOf(*bytes) == hash) {
      store_->NoteDamagedAnswer(RemoteCommitName(uuid_, ordinal));
    }
  }
  if (!bytes.has_value() || base::DigestOf(*bytes) != hash) {
    return absl::DataLossError(absl::StrFormat(
        "commit %d in %s is %s", ordinal, store_->address(),
        bytes.has_value() ? "another one than it was" : "gone"));
  }
  CKPTREE_ASSIGN_OR_RETURN(RemoteCommit commit,
                           schema::DecodeRemoteCommit(*bytes));
  if (commit.shape != RemoteCommit::Shape::kOpen) {
    // Who wrote it, whichever commit that says.
    open_ = WithoutRows(commit);
    open_->ordinal = commit.era;
  }
  Saw(std::move(commit), hash);
  return absl::OkStatus();
}

absl::Status RemoteChain::ReadOn(TakeFn take, const kv::Call& call) {
  if (pending_.has_value()) {
    return absl::FailedPreconditionError(
        "what became of the commit before is not known yet");
  }
  // One by one at first: a look at a chain with nothing new is one request, and
  // behind an index there are few.
  std::size_t at_once = 1;
  int alone = 0;
  bool looked_again = false;
  while (true) {
    const std::uint64_t first = ordinal_ + 1;
    std::vector<absl::StatusOr<std::optional<std::string>>> found(
        at_once, std::optional<std::string>());
    {
      std::vector<std::jthread> others;
      for (std::size_t i = 1; i < at_once; ++i) {
        others.emplace_back([&, i] {
          found[i] = GuardedResult("reading a commit",
                                   [&] { return Get(first + i, call); });
        });
      }
      found[0] = Get(first, call);
    }
    std::size_t next =
        ++alone < kReadAlone ? 1 : std::min(2 * at_once, most_at_once_);
    // Rule 12: what lies behind one that is absent does not count yet.
    for (std::size_t i = 0; i < at_once; ++i) {
      CKPTREE_RETURN_IF_ERROR(found[i].status());
      if (!found[i]->has_value()) {
        if (at_once == 1 || looked_again) {
          if (!end_was_listed_) {
            CKPTREE_ASSIGN_OR_RETURN(end_was_listed_, IsEnd(call));
          }
          if (end_was_listed_) return CheckExpected();
        }
        // The slowest of many requests took its time: one more look, so that
        // who takes over from a writer that never pauses is not always late.
        // One alone: such a writer may always be there first.
        looked_again = true;
        next = 1;
        break;
      }
      std::string& bytes = **found[i];
      CKPTREE_ASSIGN_OR_RETURN(
          RemoteCommit commit,
          CheckAgain(first + i, /*any_may_come=*/era_ != 0, &bytes, call));
      CKPTREE_RETURN_IF_ERROR(take(commit));
      // Rule 3 holds also where it is seen by reading.
      if (era_ != 0 && commit.era != era_ && fenced_.ok()) Fence(commit);
      Saw(std::move(commit), base::DigestOf(bytes));
    }
    at_once = next;
  }
}

// Commits are created one behind the other, and none is ever deleted: one that
// stands behind an absent one was made after it, unless the absent one was made
// since it was looked for.
absl::StatusOr<bool> RemoteChain::IsEnd(const kv::Call& call) const {
  const std::string newest = RemoteCommitName(uuid_, ordinal_);
  const std::string prefix = newest.substr(0, newest.rfind('/') + 1);
  CKPTREE_ASSIGN_OR_RETURN(const kv::ObjectPage behind,
                           store_->List(prefix, newest, call));
  if (behind.objects.empty()) return true;
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> next,
                           Get(ordinal_ + 1, call));
  if (next.has_value()) return false;
  return absl::DataLossError(absl::StrFormat(
      "commit %d in %s is gone, and %s is there: see whether somebody, or a "
      "lifecycle rule of the bucket, deleted it. %s",
      ordinal_ + 1, store_->address(), behind.objects.front().name,
      kMendChain));
}

absl::Status RemoteChain::CheckExpected() const {
  if (ordinal_ >= expected_) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "commit %d in %s is gone, and an index of commit %d is there: see "
      "whether somebody, or a lifecycle rule of the bucket, deleted it. %s",
      ordinal_ + 1, store_->address(), expected_, kMendChain));
}

absl::Status RemoteChain::Append(RemoteCommit draft, const kv::Call& call) {
  CKPTREE_RETURN_IF_ERROR(fenced_);
  if (pending_.has_value()) {
    return absl::FailedPreconditionError(
        "what became of the commit before is not known yet");
  }
  const bool is_open = draft.shape == RemoteCommit::Shape::kOpen;
  if (!is_open && era_ == 0) {
    return absl::FailedPreconditionError("the store was not opened there");
  }
  draft.uuid = uuid_;
  draft.ordinal = ordinal_ + 1;
  draft.before = hash_;
  if (draft.write_id.empty()) draft.write_id = NewRemoteId();
  draft.era = is_open ? draft.ordinal : era_;
  draft.ceiling = std::max(draft.ceiling, ceiling_);
  draft.made_ns = absl::GetCurrentTimeNanos();
  std::string bytes = schema::EncodeRemoteCommit(draft);
  if (bytes.size() > kv::ObjectStore::kMaxConditionalBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a commit of %d bytes", bytes.size()));
  }
  pending_ = Pending{std::move(draft), std::move(bytes),
                     RemoteCommitName(uuid_, ordinal_ + 1)};
  return Settle(call);
}

absl::Status RemoteChain::Settle(const kv::Call& call) {
  if (!pending_.has_value()) {
    CKPTREE_RETURN_IF_ERROR(fenced_);
    return absl::FailedPreconditionError("no commit was asked for");
  }
  // Also where something is thrown from here on.
  const bool first = !std::exchange(pending_->asked, true);
  const absl::StatusOr<kv::PutAnswer> answer =
      kv::PutSettled(*store_, pending_->name, pending_->bytes,
                     HexOf(pending_->commit.write_id), call);
  if (!answer.ok() && first) {
    // The very first request: nothing was created, nor will be.
    pending_.reset();
    return answer.status();
  }
  const absl::Status unknown = !answer.ok() ? answer.status() : answer->reason;
  if (!answer.ok() || answer->outcome == kv::PutOutcome::kUnknown) {
    return absl::Status(
        absl::IsCancelled(unknown) ? unknown.code()
                                   : absl::StatusCode::kUnavailable,
        absl::StrFormat("whether commit %d is in %s is not known yet: %s",
                        pending_->commit.ordinal, store_->address(),
                        unknown.message()));
  }
  if (answer->outcome == kv::PutOutcome::kCreated) return Settled();
  // Another's. Whose it is, is looked at before anything is said.
  absl::StatusOr<std::optional<std::string>> there =
      Get(pending_->commit.ordinal, call);
  if (!there.ok() || !there->has_value()) {
    return absl::UnavailableError(absl::StrFormat(
        "commit %d in %s is another's, and cannot be read: %s",
        pending_->commit.ordinal, store_->address(),
        there.ok() ? "it is not there" : there.status().message()));
  }
  CKPTREE_ASSIGN_OR_RETURN(const RemoteCommit by,
                           CheckAgain(pending_->commit.ordinal,
                                      /*any_may_come=*/true, &**there, call));
  if (by.write_id == pending_->commit.write_id) {
    // The answer before came from something between.
    return Settled();
  }
  const bool is_open = pending_->commit.shape == RemoteCommit::Shape::kOpen;
  // Nobody else ships in this era: a request arrived of which an error had said
  // that it would not.
  const bool is_own = !is_open && by.era == pending_->commit.era &&
                      by.local == pending_->commit.local;
  pending_.reset();
  if (is_own) {
    return absl::AlreadyExistsError(
        absl::StrFormat("commit %d in %s is an earlier one of this process",
                        by.ordinal, store_->address()));
  }
  if (is_open) {
    return absl::AbortedError(
        absl::StrFormat("commit %d in %s is of host %s, pid %d", by.ordinal,
                        store_->address(), by.host, by.pid));
  }
  Fence(by);
  return fenced_;
}

absl::Status RemoteChain::Settled() {
  Pending done = *std::move(pending_);
  pending_.reset();
  if (done.commit.shape == RemoteCommit::Shape::kOpen) {
    era_ = done.commit.ordinal;
  }
  Saw(std::move(done.commit), base::DigestOf(done.bytes));
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> RemoteChain::NewestTime(const kv::Call& call) {
  return RemoteCommitTime(*store_, uuid_, ordinal_, call);
}

}  // namespace ckptree::internal
