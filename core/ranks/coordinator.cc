// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/process/disk_threads.h"
#include "core/process/guarded_call.h"
#include "core/ranks/meeting.h"
#include "core/ranks/part_build.h"
#include "kv/monotonic.h"

namespace ckptree::internal {

using schema::MailKind;
using schema::RankMail;

namespace {

// At most so many are named in a message.
constexpr std::size_t kNamed = 8;

std::vector<RankMail> NothingNew() { return {}; }

// Where the store of rank 0 has to be opened again.
constexpr char kOnEveryRank[] = "; every rank has to open its group again";

std::string ListOf(std::vector<std::string> ranks) {
  if (ranks.size() > kNamed) {
    ranks.resize(kNamed);
    ranks.push_back("...");
  }
  return absl::StrJoin(ranks, ", ");
}

}  // namespace

std::string TextOf(const SaveOptions& options) {
  return absl::StrFormat(
      "overwrite=%d tagged=%d ignore_policy=%d delete_later=%d branch=%s",
      options.overwrite, options.tagged, options.ignore_policy,
      options.delete_later, absl::CEscape(options.branch));
}

Coordinator::Coordinator(Engine* engine, const RankOptions& options,
                         std::shared_ptr<RankRemote> remote)
    : engine_(engine),
      options_(options),
      remote_(std::move(remote)),
      place_(remote_ != nullptr ? remote_
                                : std::shared_ptr<MailPlace>(FolderOf(
                                      engine->kv_options(), engine->directory(),
                                      options.job))),
      nonce_(NewNonce()),
      mail_(place_->Write(kCoordinatorBox), Beat()),
      heartbeat_(&mail_, Beat(), [this] { LookAround(); }) {}

absl::Duration Coordinator::Beat() const {
  return BeatOf(options_.deadline, place_->pace());
}

Backoff Coordinator::NewBackoff() {
  return Backoff(place_->pace(), watch_.has_value() ? &*watch_ : nullptr,
                 options_.deadline);
}

void Coordinator::LookAround() {
  const absl::MutexLock lock(&mu_);
  // What cannot be read now is there the next time.
  if (met_) Poll(/*look=*/true).IgnoreError();
}

absl::Status Coordinator::Meet() {
  CKPTREE_RETURN_IF_ERROR(place_->Make());
  if (const std::string shown = place_->Watched(""); !shown.empty()) {
    watch_.emplace(shown);
  }
  RankMail open;
  open.kind = MailKind::kOpen;
  open.world = static_cast<std::uint32_t>(options_.world);
  open.nonce = nonce_;
  open.session = engine_->database().session();
  open.uuid = engine_->store_record().uuid;
  open.job = options_.job;
  open.host = HostName();
  open.pid = static_cast<std::uint32_t>(getpid());
  CKPTREE_RETURN_IF_ERROR(mail_.Post(open));

  const absl::Time end = kv::MonotonicNow() + options_.open_deadline;
  Backoff backoff = NewBackoff();
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const bool met, Met(kv::MonotonicNow() > end));
    if (met) return absl::OkStatus();
    mail_.Beat();
    backoff.Pause();
  }
}

absl::StatusOr<bool> Coordinator::Met(bool late) {
  const absl::MutexLock lock(&mu_);
  absl::Status status = Poll(/*look=*/true);
  std::vector<std::string> missing;  // No process of it ever came.
  std::vector<std::string> gave_up;
  for (int rank = 1; rank < options_.world; ++rank) {
    bool came = false;
    bool there = false;
    for (const Peer& peer : peers_) {
      if (peer.rank != static_cast<std::uint32_t>(rank)) continue;
      came = came || peer.welcome;
      there = there || (peer.welcome && !peer.closed);
    }
    if (!there) (came ? gave_up : missing).push_back(absl::StrCat(rank));
  }
  if (status.ok() && !(missing.empty() && gave_up.empty())) {
    if (!late) return false;
    status = Missing(std::move(missing), std::move(gave_up));
    if (!turned_away_.ok()) {
      status = absl::Status(
          status.code(),
          absl::StrFormat("%s; a process was turned away: %s", status.message(),
                          turned_away_.message()));
    }
  }
  met_ = status.ok();
  for (const Peer& peer : peers_) {
    if (peer.welcome) Welcome(peer, status);
  }
  CKPTREE_RETURN_IF_ERROR(status);
  return true;
}

// Who gave up is not who the others waited for.
absl::Status Coordinator::Missing(std::vector<std::string> missing,
                                  std::vector<std::string> gave_up) const {
  std::string text = absl::StrFormat("of %d ranks ", options_.world);
  if (!missing.empty()) {
    absl::StrAppendFormat(&text, "%d did not come within %s: ", missing.size(),
                          SecondsText(options_.open_deadline));
    absl::StrAppend(&text, ListOf(std::move(missing)),
                    gave_up.empty() ? "" : "; ");
  }
  if (!gave_up.empty()) {
    absl::StrAppendFormat(
        &text, "%d came and gave up before all were there: ", gave_up.size());
    absl::StrAppend(&text, ListOf(std::move(gave_up)));
  }
  return absl::DeadlineExceededError(text);
}

absl::Status Coordinator::Poll(bool look) {
  const absl::Time now = kv::MonotonicNow();
  if (look || now - looked_ > Beat()) {
    looked_ = now;
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             place_->List());
    for (const std::string& name : names) {
      std::uint32_t rank = 0;
      std::uint64_t nonce = 0;
      if (!ParseRankBox(name, &rank, &nonce)) continue;
      const bool known =
          std::any_of(peers_.begin(), peers_.end(),
                      [nonce](const Peer& p) { return p.nonce == nonce; });
      if (known) continue;
      peers_.push_back({.rank = rank,
                        .nonce = nonce,
                        .reader = place_->Read(name),
                        .heard = now});
    }
  }
  std::vector<absl::StatusOr<std::vector<RankMail>>> mails(peers_.size(),
                                                           NothingNew());
  std::atomic<std::size_t> next = 0;
  std::vector<MailSource*> readers;
  for (Peer& peer : peers_) {
    readers.push_back(peer.closed ? nullptr : peer.reader.get());
  }
  RunOnDiskThreads(
      std::min(static_cast<std::size_t>(place_->pace().at_once), peers_.size()),
      [&] {
        for (std::size_t i = next++; i < readers.size(); i = next++) {
          if (readers[i] == nullptr) continue;  // It says nothing more.
          mails[i] = GuardedResult("reading a mailbox",
                                   [&] { return readers[i]->Poll(); });
        }
      });
  const absl::Time read = kv::MonotonicNow();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    // What cannot be read now may be the next time; else the deadline tells.
    if (!mails[i].ok()) continue;
    for (const RankMail& mail : *mails[i]) Take(mail, &peers_[i]);
    if (!mails[i]->empty()) peers_[i].heard = read;
  }
  return refused_;
}

absl::Status Coordinator::Judge(const RankMail& hello) const {
  if (hello.world != static_cast<std::uint32_t>(options_.world)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rank %d says that there are %d ranks, the coordinator "
                        "says %d",
                        hello.rank, hello.world, options_.world));
  }
  if (hello.rank == 0 || hello.rank >= hello.world) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "a second rank %d of %d came", hello.rank, hello.world));
  }
  if (hello.session != engine_->database().session() ||
      hello.uuid != engine_->store_record().uuid) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "rank %d has opened another store, or before the coordinator",
        hello.rank));
  }
  // Once all have met, a rank may have been started again: of its processes
  // the one whose part comes first is taken.
  if (met_) return absl::OkStatus();
  for (const Peer& peer : peers_) {
    if (peer.welcome && !peer.closed && peer.rank == hello.rank) {
      return absl::FailedPreconditionError(
          absl::StrFormat("rank %d is there already: pid %d on %s", peer.rank,
                          peer.pid, peer.host));
    }
  }
  return absl::OkStatus();
}

void Coordinator::Take(const RankMail& mail, Peer* peer) {
  if (mail.kind == MailKind::kHello) {
    peer->host = mail.host;
    peer->pid = mail.pid;
    if (mail.code != 0) {
      // It could not open the store: then nobody can go on.
      peer->welcome = true;
      peer->closed = true;
      if (!met_) {
        refused_ = absl::Status(
            static_cast<absl::StatusCode>(mail.code),
            absl::StrFormat("rank %d (pid %d on %s): %s", mail.rank, mail.pid,
                            mail.host, mail.text));
      }
      return;
    }
    // Nothing is saved here any more: it waits for the one that comes after.
    if (met_ && !engine_->database().health().ok()) return;
    const absl::Status judged = Judge(mail);
    peer->welcome = judged.ok();
    if (!judged.ok()) turned_away_ = judged;
    if (!judged.ok() || met_) Welcome(*peer, judged);
    return;
  }
  if (!peer->welcome) return;
  if (mail.kind == MailKind::kClosed) {
    peer->closed = true;
    return;
  }
  if (mail.kind == MailKind::kNotice) {
    absl::Status& notice = notices_[mail.topic];
    if (notice.ok() && mail.code != 0) {
      notice =
          absl::Status(static_cast<absl::StatusCode>(mail.code),
                       absl::StrFormat("rank %d: %s", peer->rank, mail.text));
    }
    return;
  }
  if (mail.kind == MailKind::kBegun) {
    peer->in_call_for = mail.step;
    // One that was settled without it is no step that it passes to.
    if (mail.nth == 0 && !settled_.contains(mail.step)) {
      peer->begun.push_back(mail.step);
    }
  }
  if (mail.kind == MailKind::kFailed && mail.nth == 1) {
    std::erase(peer->begun, mail.step);
  }
  if (mail.nth == 0) return;
  const StepCall call(mail.step, mail.nth);
  const auto settled = settled_.find(mail.step);
  if (mail.kind == MailKind::kBeat ||
      (settled != settled_.end() && mail.nth <= settled->second)) {
    return;
  }
  Answer& answer = calls_[call][peer->rank];
  switch (mail.kind) {
    case MailKind::kBegun:
      // It had failed before that call was made here.
      answer.failed = absl::OkStatus();
      break;
    case MailKind::kHandoff:
      if (answer.token.empty()) answer.token = mail.body;
      break;
    case MailKind::kFailed:
      if (answer.failed.ok() && answer.token.empty()) {
        answer.failed =
            absl::Status(static_cast<absl::StatusCode>(mail.code),
                         absl::StrFormat("rank %d: %s", peer->rank, mail.text));
      }
      break;
    default:
      break;
  }
}

void Coordinator::Welcome(const Peer& peer, const absl::Status& status) {
  RankMail mail;
  mail.kind = MailKind::kWelcome;
  mail.rank = peer.rank;
  mail.nonce = peer.nonce;
  mail.code = static_cast<std::uint32_t>(status.raw_code());
  mail.text = std::string(status.message());
  if (const absl::Status posted = mail_.PostOrKeep(mail); !posted.ok()) {
    engine_->logger().Log(LogSeverity::kWarning, "ranks", posted);
  }
}

std::string Coordinator::Describe(std::uint32_t rank, bool heard) const {
  const Peer* newest = nullptr;
  for (const Peer& peer : peers_) {
    if (peer.rank == rank && peer.welcome) newest = &peer;
  }
  if (newest == nullptr) {
    return absl::StrFormat("rank %d of %d", rank, options_.world);
  }
  const std::string when =
      heard ? absl::StrFormat(", last heard of %s ago",
                              SecondsText(kv::MonotonicNow() - newest->heard))
            : "";
  return absl::StrFormat("rank %d of %d (pid %d on %s%s)", rank, options_.world,
                         newest->pid, newest->host, when);
}

absl::Status Coordinator::HavePassed(const StepCall& call,
                                     absl::Time since) const {
  // Of a step that is tried again it is not clear which call was begun.
  if (call.second > 1) return absl::OkStatus();
  const auto& answers = calls_.at(call);
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    // Who was killed at such a step may be started again in time: who is
    // silent counts for nothing.
    if (!peer->welcome || peer->closed || peer->heard <= since ||
        std::count(peer->begun.begin(), peer->begun.end(), call.first) > 0) {
      continue;
    }
    // Who is at an earlier step comes here yet.
    const auto step =
        std::find_if(peer->begun.begin(), peer->begun.end(),
                     [&](std::int64_t other) { return other > call.first; });
    if (step == peer->begun.end()) continue;
    const auto answer = answers.find(peer->rank);
    if (answer != answers.end() && !answer->second.token.empty()) continue;
    // So may a newer process of that rank.
    if (std::any_of(peer + 1, peers_.end(), [&](const Peer& other) {
          return other.rank == peer->rank && other.welcome;
        })) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s saves step %d, and rank 0 step %d: all ranks have to save the same "
        "steps, in the same order",
        Describe(peer->rank, /*heard=*/false), *step, call.first));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::HaveClosed(const StepCall& call) const {
  // By rank: a process of it has closed; one is still there.
  std::vector<bool> closed(static_cast<std::size_t>(options_.world), false);
  std::vector<bool> open = closed;
  for (const Peer& peer : peers_) {
    if (!peer.welcome || peer.rank >= closed.size()) continue;
    (peer.closed ? closed : open)[peer.rank] = true;
  }
  std::vector<std::string> gone;
  const auto& answers = calls_.at(call);
  for (std::size_t rank = 1; rank < closed.size(); ++rank) {
    if (!closed[rank] || open[rank]) continue;
    // Who hands over before it closes is read in that order.
    const auto answer = answers.find(static_cast<std::uint32_t>(rank));
    if (answer != answers.end() && !answer->second.token.empty()) continue;
    gone.push_back(Describe(static_cast<std::uint32_t>(rank), false));
  }
  if (gone.empty()) return absl::OkStatus();
  const bool one = gone.size() == 1;
  return absl::UnavailableError(
      absl::StrFormat("%s %s closed %s, and cannot save it: start %s again",
                      ListOf(std::move(gone)), one ? "has" : "have",
                      one ? "its store" : "their stores", one ? "it" : "them"));
}

// Names the ranks that have said nothing for too long.
absl::Status Coordinator::Waited(const StepCall& call, absl::Time since) const {
  const absl::Time now = kv::MonotonicNow();
  std::vector<std::string> lost;
  const auto& answers = calls_.at(call);
  bool begun = true;
  for (std::uint32_t rank = 1;
       rank < static_cast<std::uint32_t>(options_.world); ++rank) {
    const auto answer = answers.find(rank);
    if (answer != answers.end() && !answer->second.token.empty()) continue;
    absl::Time heard = since;
    bool has_begun = false;
    for (const Peer& peer : peers_) {
      if (peer.rank != rank || peer.in_call_for != call.first) continue;
      has_begun = true;
      heard = std::max(heard, peer.heard);
    }
    if (now - heard < options_.deadline) continue;
    begun = begun && has_begun;
    lost.push_back(Describe(rank));
    if (has_begun) continue;
    for (const Peer& peer : peers_) {
      if (peer.rank != rank || !peer.in_call_for.has_value()) continue;
      absl::StrAppendFormat(&lost.back(), ", whose last call was for step %d,",
                            *peer.in_call_for);
      break;
    }
  }
  if (lost.empty()) return absl::OkStatus();
  const char* const verb = lost.size() == 1 ? "has" : "have";
  return absl::DeadlineExceededError(
      begun ? absl::StrFormat("%s %s been silent for %s while saving",
                              ListOf(std::move(lost)), verb,
                              SecondsText(options_.deadline))
            : absl::StrFormat("%s %s not begun to save it after %s",
                              ListOf(std::move(lost)), verb,
                              SecondsText(options_.deadline)));
}

absl::StatusOr<std::vector<PartResult>> Coordinator::Gather(
    const StepCall& call, Save* save, const schema::RankPlan& plan,
    const std::function<absl::Status()>& check) {
  const absl::Time planned = kv::MonotonicNow();
  RankMail mail;
  mail.kind = MailKind::kPlan;
  mail.step = call.first;
  mail.nth = call.second;
  mail.body = schema::EncodeRankPlan(plan);
  CKPTREE_RETURN_IF_ERROR(mail_.Post(mail));
  {
    const absl::MutexLock lock(&mu_);
    calls_[call];
  }

  Builder builder;
  builder.nonce = nonce_;
  builder.planned = planned;
  const auto alive = [&]() -> absl::Status {
    mail_.Beat();
    return check();
  };
  const PartPlace place{engine_->database().staging_directory(), remote_.get()};
  absl::StatusOr<PartResult> own =
      BuildPart(engine_, place, plan, builder, save->content.get(),
                &save->counters, alive);
  if (!own.ok()) {
    return absl::Status(own.status().code(),
                        absl::StrCat("rank 0: ", own.status().message()));
  }
  std::vector<PartResult> parts;
  parts.push_back(*std::move(own));

  std::vector<std::string> tokens;
  Backoff backoff = NewBackoff();
  while (true) {
    CKPTREE_RETURN_IF_ERROR(alive());
    {
      const absl::MutexLock lock(&mu_);
      CKPTREE_RETURN_IF_ERROR(Poll(/*look=*/false));
      tokens.clear();
      for (const auto& [rank, answer] : calls_[call]) {
        CKPTREE_RETURN_IF_ERROR(answer.failed);
        if (!answer.token.empty()) tokens.push_back(answer.token);
      }
      if (tokens.size() + 1 == static_cast<std::size_t>(options_.world)) break;
      if (!HaveClosed(call).ok()) {
        // Perhaps another process is there in its place.
        CKPTREE_RETURN_IF_ERROR(Poll(/*look=*/true));
        CKPTREE_RETURN_IF_ERROR(HaveClosed(call));
      }
      CKPTREE_RETURN_IF_ERROR(HavePassed(call, planned));
      CKPTREE_RETURN_IF_ERROR(Waited(call, planned));
    }
    backoff.Pause();
  }
  std::vector<std::uint64_t> taken(static_cast<std::size_t>(options_.world), 0);
  taken[0] = nonce_;
  for (const std::string& bytes : tokens) {
    CKPTREE_ASSIGN_OR_RETURN(const schema::PartToken token,
                             schema::DecodePartToken(bytes));
    CKPTREE_ASSIGN_OR_RETURN(PartResult part,
                             TakeOver(engine_, place, plan, token, alive));
    taken[token.rank] = token.nonce;
    parts.push_back(std::move(part));
  }
  const absl::MutexLock lock(&mu_);
  taken_[call] = std::move(taken);
  return parts;
}

absl::Status Coordinator::WithAdvice(const absl::Status& status) const {
  if (status.ok() || options_.world == 1 || !engine_->CheckUsable().ok() ||
      engine_->database().health().ok() ||
      absl::EndsWith(status.message(), kOnEveryRank)) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), kOnEveryRank));
}

void Coordinator::Settle(const StepCall& call, const absl::Status& outcome,
                         std::uint64_t ordinal) {
  const absl::Status status = WithAdvice(outcome);
  RankMail mail;
  mail.kind = MailKind::kOutcome;
  mail.step = call.first;
  mail.nth = call.second;
  mail.code = static_cast<std::uint32_t>(status.raw_code());
  mail.text = std::string(status.message());
  mail.ordinal = ordinal;
  {
    const absl::MutexLock lock(&mu_);
    if (const auto taken = taken_.find(call); taken != taken_.end()) {
      if (status.ok()) mail.taken = taken->second;
      taken_.erase(taken);
    }
    calls_.erase(call);
    std::uint32_t& settled = settled_[call.first];
    settled = std::max(settled, call.second);
    // Ranks are at most a few steps behind.
    if (settled_.size() > 64) settled_.erase(settled_.begin());
    for (Peer& peer : peers_) std::erase(peer.begun, call.first);
  }
  // Who misses it looks into the store.
  if (const absl::Status posted = mail_.PostOrKeep(mail); !posted.ok()) {
    engine_->logger().Log(LogSeverity::kWarning, "ranks", posted);
  }
}

absl::Status Coordinator::Tell(const RankMail& told) {
  if (options_.world == 1) return absl::OkStatus();
  return mail_.PostOrKeep(told);
}

absl::StatusOr<bool> Coordinator::Noticed(const std::string& topic) {
  const absl::MutexLock lock(&mu_);
  const absl::Time begun = kv::MonotonicNow();
  if (begun >= next_look_) {
    // What cannot be read now is there the next time.
    Poll(/*look=*/false).IgnoreError();
    const absl::Time read = kv::MonotonicNow();
    next_look_ = read + (read - begun) * 10;
  }
  const auto notice = notices_.find(topic);
  if (notice == notices_.end()) return false;
  CKPTREE_RETURN_IF_ERROR(notice->second);
  return true;
}

void Coordinator::Close() { mail_.Close(); }

}  // namespace ckptree::internal
