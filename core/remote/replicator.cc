// SPDX-License-Identifier: Apache-2.0

#include "core/remote/replicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/remote/cleaner.h"
#include "core/remote/remote_objects.h"
#include "kv/monotonic.h"
#include "kv/timed_wait.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteCommit;

constexpr absl::Duration kLeastIdle = absl::Seconds(10);
// How long a writer waits for the open of one that claims the store, and how
// often it looks in that time.
constexpr absl::Duration kPauseForClaim = absl::Seconds(20);
constexpr absl::Duration kLookForOpen = absl::Milliseconds(20);
// How often who waits looks what keeps it, and whether it goes on waiting.
constexpr absl::Duration kLookAtTrouble = absl::Milliseconds(100);
// How long a close waits for the look at what is lost there, which lists all
// objects: the next open looks, too.
constexpr absl::Duration kLookAtClose = absl::Minutes(1);
constexpr std::size_t kMostClaimBytes = 64;
// An index is written behind so many commits: what an open reads beside it.
constexpr std::uint64_t kCommitsPerIndex = 3;
// Before each of so many it looks whether its last commit is still there,
// before the others for a claim.
constexpr std::uint64_t kIndexesPerLook = 4;

// Before try number `tries`, at random up to a bound that doubles to 20 s.
absl::Duration PauseOf(int tries) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const double most =
      std::min(20.0, 0.1 * static_cast<double>(1 << std::min(tries, 10)));
  return absl::Seconds(
      std::uniform_real_distribution<double>(most / 2, most)(random));
}

}  // namespace

Replicator::Replicator(std::unique_ptr<kv::ObjectStore> store,
                       std::string directory, const StoreOptions& options,
                       kv::Options kv_options,
                       std::shared_ptr<RemoteTrouble> trouble,
                       std::unique_ptr<RemoteAttendant> attendant)
    : remote_trouble_(std::move(trouble)),
      attendant_(std::move(attendant)),
      store_(std::move(store)),
      directory_(std::move(directory)),
      spares_(std::make_shared<RemoteSpares>(store_.get(), directory_)),
      kv_options_(std::move(kv_options)),
      log_(options.log),
      cancelled_(GuardedQuestion(options.cancelled)),
      take_over_(options.take_over),
      waited_for_(options.durable == Durable::kRemote),
      grace_(options.remote_grace) {}

Replicator::~Replicator() { Stop(absl::ZeroDuration()).IgnoreError(); }

void Replicator::Note(std::uint64_t ordinal, std::uint64_t version,
                      const kv::WriteBatch& batch) {
  const absl::MutexLock lock(&mu_);
  // Also where nothing else changed: the chain then says that the directory has
  // no commit which was not shipped.
  for (const kv::WriteBatch::Operation& operation : batch.operations()) {
    if (IsOfTheDirectory(operation.space, operation.key)) continue;
    changed_.emplace(operation.space, operation.key);
  }
  noted_ = ordinal;
  ceiling_ = std::max(ceiling_, version);
  if (version != 0) ordinal_of_[version] = ordinal;
}

// A claim that nobody makes good costs one pause.
absl::Status Replicator::YieldToClaim(const std::stop_token& stop) {
  const kv::Call call = kv::Call::Within(kRequestTime, stop);
  const absl::StatusOr<std::optional<std::string>> claim =
      GetObject(*store_, ClaimName(), kMostClaimBytes, call);
  if (!claim.ok() || !claim->has_value() || **claim == claim_) {
    return absl::OkStatus();
  }
  claim_ = **claim;
  const absl::Time until = kv::MonotonicNow() + kPauseForClaim;
  while (kv::MonotonicNow() < until && !stop.stop_requested()) {
    CKPTREE_RETURN_IF_ERROR(ReadOn(call));
    CKPTREE_RETURN_IF_ERROR(chain_->fenced());
    const absl::MutexLock lock(&mu_);
    const auto stopped = [&stop] { return stop.stop_requested(); };
    kv::AwaitFor(mu_, absl::Condition(&stopped), kLookForOpen);
  }
  const std::string name = ClaimName();
  store_->Delete(std::span(&name, 1), call).IgnoreError();
  return absl::OkStatus();
}

void Replicator::Loop(const std::stop_token& stop) {
  const EngineThread mark(database_);
  int tries = 0;
  std::string told;
  while (true) {
    bool cleaning = false;
    bool closing = false;
    const absl::Duration until_work = UntilIdleWork();
    {
      const absl::MutexLock lock(&mu_);
      const auto due = [this] {
        mu_.AssertReaderHeld();
        return stopping_ || noted_ > shipped_ || keep_given_ != nullptr;
      };
      if (!kv::AwaitFor(mu_, absl::Condition(&due), until_work)) {
        cleaning = true;
      }
      if (stop.stop_requested() || !health_.ok()) return;
      if (keep_given_ != nullptr) {
        local_keep_ = std::move(keep_given_);
        keep_due_ = true;
        continue;
      }
      closing = noted_ <= shipped_ && !cleaning;
    }
    if (closing) {  // Stopping, and all is there.
      // A round may have come before the last step was listed.
      if (local_keep_ == nullptr || std::exchange(last_round_, true)) return;
      Guarded("local_keep", [&] { LetGo(stop); });
      continue;  // It may have made a commit.
    }
    if (cleaning) {
      Guarded("cleaning", [&] { Clean(stop); });
      if (keep_due_) Guarded("local_keep", [&] { LetGo(stop); });
      continue;
    }
    const absl::Status shipped =
        GuardedStatus("shipping", [&] { return ShipOnce(stop); });
    LookEnded();  // Also where it did not come to that.
    if (stop.stop_requested()) return;
    // What was written again in the meantime is looked for once more at once.
    if (absl::IsAborted(shipped) && tries == 0) {
      ++tries;
      continue;
    }
    // Damage of the chain may be mended there; saves go on beside it.
    const bool ended = !shipped.ok() && (!chain_->fenced().ok() || gone_);
    Guarded("shipping", [&] { Tell(shipped, ended, &told); });
    if (shipped.ok()) {
      tries = 0;
      continue;
    }
    const absl::MutexLock lock(&mu_);
    trouble_ = shipped;
    if (ended) {
      health_ = shipped;
      return;
    }
    // Ends early where the store is closed: one more try, then.
    const bool stopped = stopping_;
    const auto changed = [this, &stopped, &stop] {
      mu_.AssertReaderHeld();
      return stop.stop_requested() || stopping_ != stopped;
    };
    kv::AwaitFor(mu_, absl::Condition(&changed), PauseOf(++tries));
  }
}

void Replicator::Guarded(const char* what,
                         absl::FunctionRef<void()> work) const {
  const absl::Status done = GuardedStatus(what, [&] {
    work();
    return absl::OkStatus();
  });
  if (!done.ok()) logger_->Log(LogSeverity::kWarning, "remote", done);
}

void Replicator::Tell(const absl::Status& shipped, bool ended,
                      std::string* told) {
  if (shipped.ok()) {
    if (told->empty()) return;
    told->clear();
    logger_->Log(LogSeverity::kInfo, "remote",
                 absl::StrFormat("%s takes commits again", address()));
    return;
  }
  std::string text(shipped.message());
  if (text != *told && (ended || !remote_trouble_->told())) {
    logger_->Log(ended ? LogSeverity::kError : LogSeverity::kWarning, "remote",
                 shipped);
    *told = std::move(text);
  }
  if (chain_->fenced().ok()) return;
  note_.fenced = std::string(chain_->fenced().message());
  const absl::Status noted = WriteLocalNote(kv_options_, directory_, note_);
  if (!noted.ok()) logger_->Log(LogSeverity::kError, "remote", noted);
}

// What it wrote is deleted under it, or put back to an older state: it would
// ship on, and nobody could read that.
absl::Status Replicator::CheckIsStillThere(const kv::Call& call) {
  // Not the newest one: that may have come since.
  const std::uint64_t ordinal = std::max(looked_at_, chain_->era());
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<kv::ObjectInfo> there,
      store_->Head(RemoteCommitName(uuid_, ordinal), call));
  if (there.has_value()) {
    looked_at_ = chain_->ordinal();
    return absl::OkStatus();
  }
  // What stands before the store may say so, too, while that is away: it gives
  // no list of what is there.
  const std::string name = RemoteCommitName(uuid_, ordinal);
  CKPTREE_ASSIGN_OR_RETURN(
      const kv::ObjectPage behind,
      store_->List(name.substr(0, name.rfind('/') + 1),
                   RemoteCommitName(uuid_, ordinal - 1), call));
  if (!behind.objects.empty() && behind.objects.front().name == name) {
    return absl::UnavailableError(absl::StrFormat(
        "%s is in a list of %s, which said that it is not there", name,
        store_->address()));
  }
  gone_ = true;
  constexpr std::string_view kFolder = "file://";
  const bool may_be_away = store_->address().starts_with(kFolder);
  const std::string rest =
      database_->any_far()
          ? absl::StrFormat(
                "%s lacks what was let go of (local_keep): put the objects "
                "back from versions or a copy of them, and open it again",
                directory_)
          : absl::StrFormat(
                "%s has all of it. End this process, %sdelete what is left at "
                "that address, and open the directory again with take_over "
                "set: all is shipped anew",
                directory_,
                may_be_away
                    ? "and see whether the file system of that folder is "
                      "mounted: once it is, open the directory again, and "
                      "delete nothing. Only where the objects are gone from it "
                    : "");
  return absl::DataLossError(absl::StrFormat(
      "commit %d, which this process had put there, is gone from %s: somebody "
      "deleted the objects of this store, or put older ones back. Nothing more "
      "is shipped there; %s",
      ordinal, store_->address(), rest));
}

absl::Status Replicator::WriteIndex(bool any, const std::stop_token& stop) {
  const std::uint64_t behind = index_->ordinal() - index_->written();
  if (behind < (any ? 1 : kCommitsPerIndex)) return absl::OkStatus();
  // In turns, so that neither is a request more.
  if (!any) {
    CKPTREE_RETURN_IF_ERROR(
        indexes_++ % kIndexesPerLook == 0
            ? CheckIsStillThere(kv::Call::Within(kRequestTime, stop))
            : YieldToClaim(stop));
  }
  const absl::Status written =
      index_->Write(chain_->hash(), chain_->era(), *store_, stop);
  // A run that is gone.
  if (absl::IsDataLoss(written)) {
    CKPTREE_RETURN_IF_ERROR(
        CheckIsStillThere(kv::Call::Within(kRequestTime, stop)));
  }
  // It is tried again behind the next commit: opens read more until then.
  if (!written.ok() && !stop.stop_requested() && logger_ != nullptr) {
    logger_->Log(LogSeverity::kWarning, "remote", written);
  }
  return absl::OkStatus();
}

// Where nothing is shipped for long.
absl::Duration Replicator::UntilIdleWork() const {
  const absl::Time now = kv::MonotonicNow();
  absl::Duration until = absl::InfiniteDuration();
  if (index_->HasDead()) until = std::max(cleaner_->next() - now, kLeastIdle);
  if (keep_due_) {
    until = std::min(until,
                     std::max(local_keep_->next() - now, absl::ZeroDuration()));
  }
  return until;
}

absl::Status Replicator::WaitForAll(absl::Duration timeout) {
  std::uint64_t wanted = 0;
  {
    const absl::MutexLock lock(&mu_);
    wanted = noted_;
  }
  return WaitFor(wanted, timeout);
}

absl::Status Replicator::WaitForLook(absl::Time until) {
  while (true) {
    const bool enough = kv::MonotonicNow() >= until;
    {
      const absl::MutexLock lock(&mu_);
      const auto over = [this] {
        mu_.AssertReaderHeld();
        return !looking_ || !health_.ok() || ended_;
      };
      if (kv::AwaitFor(mu_, absl::Condition(&over), kLookAtTrouble)) {
        return absl::OkStatus();
      }
    }
    const bool cancelled = cancelled_ && cancelled_();
    if (cancelled || enough) {
      return absl::Status(
          cancelled ? absl::StatusCode::kCancelled
                    : absl::StatusCode::kDeadlineExceeded,
          absl::StrFormat("all commits are in %s, and whether the segments "
                          "that they need still are is being looked at",
                          address()));
    }
    // All commits are there: an object store that answers no more keeps nobody.
    remote_trouble_->Look();
    if (remote_trouble_->told()) return absl::OkStatus();
  }
}

absl::Status Replicator::WaitForWhole(absl::Duration timeout) {
  const absl::Time end = kv::MonotonicNow() + timeout;
  CKPTREE_RETURN_IF_ERROR(WaitForAll(timeout));
  CKPTREE_RETURN_IF_ERROR(WaitForLook(end));
  std::uint64_t again = 0;
  {
    const absl::MutexLock lock(&mu_);
    again = again_;
    if (shipped_ >= again) return absl::OkStatus();
  }
  return WaitFor(again, end - kv::MonotonicNow());
}

absl::Status Replicator::WaitFor(std::uint64_t wanted, absl::Duration timeout) {
  const absl::Time end = kv::MonotonicNow() + timeout;
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
      const auto there = [this, wanted] {
        mu_.AssertReaderHeld();
        return shipped_ >= wanted || !health_.ok() || stopped_;
      };
      const absl::Duration left = end - kv::MonotonicNow();
      kv::AwaitFor(mu_, absl::Condition(&there),
                   std::min(left, kLookAtTrouble));
      if (cancelled_ && cancelled_()) {
        return absl::CancelledError(NotThere().message());
      }
      // What was there cannot be read there any more.
      if (absl::IsDataLoss(health_)) return health_;
      if (shipped_ >= wanted) return absl::OkStatus();
      if (!health_.ok()) return health_;
      if (stopped_ || left <= kLookAtTrouble) return NotThere();
    }
    remote_trouble_->Look();
  }
}

// With what keeps it. Wrong credentials are an error of their own.
absl::Status Replicator::NotThere() const {
  absl::Status why = remote_trouble_->now();
  if (why.ok()) why = trouble_;
  const bool no_right =
      absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why);
  return absl::Status(
      no_right ? why.code() : absl::StatusCode::kDeadlineExceeded,
      absl::StrFormat("%d commits are durable here and not in %s yet%s%s",
                      noted_ - std::min(noted_, shipped_), address(),
                      why.ok() ? "" : ": ", why.message()));
}

absl::Status Replicator::WaitForVersion(std::uint64_t version,
                                        absl::Duration timeout) {
  std::uint64_t wanted = 0;
  {
    const absl::MutexLock lock(&mu_);
    const auto known = ordinal_of_.find(version);
    if (absl::IsDataLoss(health_)) return health_;
    // Shipped ones are not kept.
    if (known == ordinal_of_.end()) return absl::OkStatus();
    wanted = known->second;
  }
  return WaitFor(wanted, timeout);
}

absl::Status Replicator::health() const {
  const absl::MutexLock lock(&mu_);
  return health_;
}

std::uint64_t Replicator::backlog() const {
  const absl::MutexLock lock(&mu_);
  return noted_ - std::min(noted_, shipped_);
}

absl::Status Replicator::Stop(absl::Duration timeout) {
  {
    const absl::MutexLock lock(&mu_);
    if (stopped_) return absl::OkStatus();
    stopping_ = true;
  }
  absl::Status status;
  if (thread_.joinable()) {
    const absl::Time end = kv::MonotonicNow() + timeout;
    status = WaitForAll(timeout);
    if (status.ok()) {
      WaitForLook(std::min(end, kv::MonotonicNow() + kLookAtClose))
          .IgnoreError();
      // What is lost there.
      if (backlog() > 0) status = WaitForAll(end - kv::MonotonicNow());
    }
    {
      // The thread ends by itself: what is to leave the disk leaves it first.
      const absl::MutexLock lock(&mu_);
      const auto ended = [this] {
        mu_.AssertReaderHeld();
        return ended_;
      };
      // What cannot be shipped now is left to the next open, as before.
      while (status.ok() && keeps_some_ && !ended_ && trouble_.ok() &&
             kv::MonotonicNow() < end && !(cancelled_ && cancelled_())) {
        kv::AwaitFor(mu_, absl::Condition(&ended), kLookAtTrouble);
      }
    }
    thread_.request_stop();
    // What it waits for is looked at again when this is given back.
    { const absl::MutexLock lock(&mu_); }
    thread_.join();
  }
  if (early_ != nullptr) early_->Stop();
  // Also where the open did not come to its end.
  const bool closes = status.ok() && chain_ != nullptr && chain_->era() != 0 &&
                      chain_->fenced().ok() && !chain_->pending();
  if (closes) {
    const absl::Status there =
        CheckIsStillThere(kv::Call::Within(kRequestTime));
    if (absl::IsDataLoss(there)) status = there;
  }
  if (closes && status.ok()) {
    RemoteCommit close = Draft(RemoteCommit::Shape::kClose);
    {
      const absl::MutexLock lock(&mu_);
      close.from = close.to = shipped_;
    }
    // Without it the next machine waits ten minutes, or is told not to.
    const absl::Status closed =
        chain_->Append(std::move(close), kv::Call::Within(kRequestTime));
    if (!closed.ok() && logger_ != nullptr) {
      logger_->Log(LogSeverity::kWarning, "remote", closed);
    }
    if (closed.ok() && index_ != nullptr) {
      index_->AddWithRows(*chain_->newest(), {}).IgnoreError();
      WriteIndex(/*any=*/true, {}).IgnoreError();
    }
  }
  const absl::MutexLock lock(&mu_);
  stopped_ = true;
  return status;
}

}  // namespace ckptree::internal
