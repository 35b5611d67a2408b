// SPDX-License-Identifier: Apache-2.0

#include "tools/line/changes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/preservation.h"
#include "ckptree/selector.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

using internal::Asked;
using schema::RequestKind;
using schema::StoreAnswer;
using schema::StoreRequest;

constexpr std::int64_t kDefaultSeconds = 10;

StepSelector SelectorOf(const StepInfo& info) {
  StepSelector selector = AtStep(info.step, info.branch);
  selector.version = info.version;
  return selector;
}

StoreRequest RequestOf(RequestKind kind,
                       const std::vector<StepInfo>& steps = {}) {
  StoreRequest request;
  request.kind = kind;
  for (const StepInfo& info : steps) {
    request.steps.push_back({info.branch, info.step, info.version});
  }
  return request;
}

// Those of `steps` that are still there, as the same saves.
absl::StatusOr<std::vector<StepInfo>> StillThere(
    Store* store, const std::vector<StepInfo>& steps) {
  std::vector<StepInfo> there;
  for (const StepInfo& info : steps) {
    const absl::StatusOr<StepInfo> now = store->Resolve(SelectorOf(info));
    if (now.ok()) {
      there.push_back(*now);
    } else if (!absl::IsNotFound(now.status()) &&
               !absl::IsFailedPrecondition(now.status())) {
      return now.status();
    }
  }
  return there;
}

absl::StatusOr<std::optional<BranchInfo>> FindBranch(Store* store,
                                                     const std::string& name) {
  const absl::StatusOr<std::vector<BranchInfo>> branches = store->Branches();
  if (!branches.ok()) return branches.status();
  for (const BranchInfo& branch : *branches) {
    if (branch.name == name) return branch;
  }
  return std::optional<BranchInfo>();
}

absl::Status NotKnown(std::string_view what, std::string_view hint) {
  return WithExitCode(
      WithHint(absl::DeadlineExceededError(std::string(what)), hint),
      kExitUnknown);
}

std::string TextOf(const kv::LockHolder& writer) {
  return absl::StrFormat("pid %d on host %s", writer.pid, writer.host);
}

}  // namespace

absl::StatusOr<absl::Duration> Changes::Timeout() const {
  std::int64_t seconds = kDefaultSeconds;
  for (const char* flag : {"wait", "timeout"}) {
    const auto number = session_.arguments().Number(flag);
    if (!number.ok()) return number.status();
    seconds = number->value_or(seconds);
  }
  return absl::Seconds(seconds);
}

absl::StatusOr<bool> Changes::TakeOver() {
  session_.CloseStore();
  const absl::StatusOr<Store*> store = session_.OpenStoreForAChange();
  own_ = store.ok();
  if (own_) return true;
  if (!absl::IsUnavailable(store.status())) return store.status();
  const absl::StatusOr<Store*> reader = session_.OpenStore();
  if (!reader.ok()) return reader.status();
  return false;
}

absl::Status Changes::Open() {
  const absl::StatusOr<absl::Duration> timeout = Timeout();
  if (!timeout.ok()) return timeout.status();
  const absl::StatusOr<Store*> store = session_.OpenStoreForAChange();
  own_ = store.ok();
  if (own_ || !absl::IsUnavailable(store.status()) ||
      *timeout == absl::ZeroDuration()) {
    return store.status();
  }
  return session_.OpenStore().status();
}

absl::StatusOr<StoreAnswer> Changes::Make(const Change& change) {
  if (!own_) return Ask(change);
  by_.clear();
  absl::Status status = change.act(store());
  if (!status.ok()) return status;
  changed_ |= change.request.kind != RequestKind::kCollect;
  return StoreAnswer();
}

absl::StatusOr<StoreAnswer> Changes::Ask(const Change& change) {
  const absl::StatusOr<absl::Duration> timeout = Timeout();
  if (!timeout.ok()) return timeout.status();
  internal::AskOptions options;
  options.timeout = *timeout;
  options.cancelled = Interrupted;
  options.wait_once_taken = change.patient;
  // Of a collection it is there already.
  std::optional<Interruptible> interruptible;
  if (change.request.kind != RequestKind::kCollect) interruptible.emplace();
  const absl::Time until = NowForWaits() + *timeout;
  while (true) {
    absl::StatusOr<Asked> asked =
        internal::Ask(session_.directory(), change.request, options);
    if (!asked.ok()) return asked.status();
    switch (asked->outcome) {
      case Asked::Outcome::kAnswered: {
        if (asked->answer.code ==
                static_cast<std::uint32_t>(absl::StatusCode::kAborted) &&
            NowForWaits() < until && !Interrupted()) {
          break;  // It closed the store first. Another one has it, or none.
        }
        by_ = absl::StrFormat("pid %d on host %s", asked->answer.pid,
                              asked->answer.host);
        if (asked->answer.code != 0) {
          return absl::Status(
              static_cast<absl::StatusCode>(asked->answer.code),
              absl::StrFormat("%s (said by %s, which has the store open)",
                              asked->answer.text, by_));
        }
        if (absl::Status status = store()->Refresh(); !status.ok()) {
          return status;
        }
        return std::move(asked->answer);
      }
      case Asked::Outcome::kNoWriter: {
        const absl::StatusOr<bool> own = TakeOver();
        if (!own.ok()) return own.status();
        if (*own) return Make(change);
        break;  // Another one came: it is asked.
      }
      case Asked::Outcome::kNotTaken:
        if (Interrupted()) return absl::CancelledError("nothing was changed");
        return WithHint(
            absl::UnavailableError(absl::StrFormat(
                "%s is held by %s, which did not take the request within %s; "
                "nothing was changed",
                session_.directory(), TextOf(asked->writer),
                absl::FormatDuration(*timeout))),
            "--timeout SECONDS waits longer; where it is no trainer, wait for "
            "its end");
      case Asked::Outcome::kUnanswered:
        return NotKnown(
            absl::StrFormat("%s took the request and has not answered: it may "
                            "still be done",
                            TextOf(asked->writer)),
            "`ckptree log`, `ckptree tag` and `ckptree fork` show what there "
            "is; --timeout SECONDS waits longer");
      case Asked::Outcome::kWriterGone: {
        absl::Status status = Finish(change, *asked);
        if (!status.ok()) return status;
        return StoreAnswer();
      }
    }
  }
}

absl::Status Changes::Finish(const Change& change, const Asked& asked) {
  const absl::StatusOr<bool> own = TakeOver();
  if (!own.ok()) return own.status();
  const absl::StatusOr<bool> done = change.is_done(store());
  if (!done.ok()) return done.status();
  if (*done) {
    session_.Note(absl::StrFormat("%s ended in the middle; it is done",
                                  TextOf(asked.writer)));
    return absl::OkStatus();
  }
  if (*own && asked.NobodyBetween()) {
    session_.Note(absl::StrFormat(
        "%s ended before it was done; it is done here", TextOf(asked.writer)));
    return change.act(store());
  }
  return NotKnown(
      "the trainer that took the request ended without an answer, and another "
      "process has written since: it may have been done, and undone",
      "look at the store and ask again");
}

absl::Status Changes::Tag(const std::string& name, const StepInfo& step,
                          bool move) {
  Change change;
  change.request = RequestOf(RequestKind::kTag, {step});
  change.request.name = name;
  change.request.move = move;
  change.act = [&](Store* store) {
    return store->Tag(name, SelectorOf(step), {.move = move});
  };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const absl::StatusOr<std::vector<TagInfo>> tags = store->Tags();
    if (!tags.ok()) return tags.status();
    return std::any_of(tags->begin(), tags->end(), [&](const TagInfo& tag) {
      return tag.name == name && tag.version == step.version;
    });
  };
  return Make(change).status();
}

absl::Status Changes::Untag(const std::string& name) {
  Change change;
  change.request = RequestOf(RequestKind::kUntag);
  change.request.name = name;
  change.act = [&](Store* store) { return store->Untag(name); };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const absl::StatusOr<std::vector<TagInfo>> tags = store->Tags();
    if (!tags.ok()) return tags.status();
    return std::none_of(tags->begin(), tags->end(),
                        [&](const TagInfo& tag) { return tag.name == name; });
  };
  // What is not a name of a tag is no request either.
  const absl::StatusOr<bool> gone = change.is_done(store());
  if (!gone.ok()) return gone.status();
  if (*gone) {
    return absl::NotFoundError(absl::StrFormat("no tag '%s'", Escape(name)));
  }
  return Make(change).status();
}

absl::Status Changes::Pin(const std::vector<StepInfo>& steps, bool pinned) {
  Change change;
  change.request =
      RequestOf(pinned ? RequestKind::kPin : RequestKind::kUnpin, steps);
  change.act = [&](Store* store) {
    for (const StepInfo& info : steps) {
      absl::Status status = pinned ? store->Pin(SelectorOf(info))
                                   : store->Unpin(SelectorOf(info));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const absl::StatusOr<std::vector<StepInfo>> there =
        StillThere(store, steps);
    if (!there.ok()) return there.status();
    return there->size() == steps.size() &&
           std::all_of(there->begin(), there->end(),
                       [&](const StepInfo& i) { return i.pinned == pinned; });
  };
  return Make(change).status();
}

absl::Status Changes::Delete(const std::vector<StepInfo>& steps, bool tagged) {
  if (steps.empty()) return absl::OkStatus();
  Change change;
  change.request = RequestOf(RequestKind::kDelete, steps);
  change.request.tagged = tagged;
  change.act = [&](Store* store) -> absl::Status {
    const absl::StatusOr<std::vector<StepInfo>> there =
        StillThere(store, steps);
    if (!there.ok()) return there.status();
    std::vector<StepSelector> selectors;
    for (const StepInfo& info : *there) selectors.push_back(SelectorOf(info));
    return store->Delete(selectors, {.tagged = tagged});
  };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const absl::StatusOr<std::vector<StepInfo>> there =
        StillThere(store, steps);
    if (!there.ok()) return there.status();
    return there->empty();
  };
  return Make(change).status();
}

absl::Status Changes::Fork(const StepInfo& step, const std::string& name) {
  Change change;
  change.request = RequestOf(RequestKind::kFork, {step});
  change.request.name = name;
  change.act = [&](Store* store) {
    return store->Fork(SelectorOf(step), name);
  };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const auto branch = FindBranch(store, name);
    if (!branch.ok()) return branch.status();
    return branch->has_value() && (*branch)->origin_branch == step.branch &&
           (*branch)->origin_step == step.step;
  };
  return Make(change).status();
}

absl::Status Changes::DropBranch(const BranchInfo& branch, bool tagged) {
  Change change;
  change.request = RequestOf(RequestKind::kDropBranch);
  change.request.name = branch.name;
  change.request.created_ns = absl::ToUnixNanos(branch.created);
  change.request.tagged = tagged;
  change.act = [&](Store* store) {
    return store->DropBranch(branch.name, {.tagged = tagged});
  };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const auto now = FindBranch(store, branch.name);
    if (!now.ok()) return now.status();
    return !now->has_value() || (*now)->created != branch.created;
  };
  return Make(change).status();
}

absl::Status Changes::SetPolicy(const Preservation& policy,
                                const std::string& branch) {
  const std::string text = Text(policy);
  Change change;
  change.request = RequestOf(RequestKind::kSetPolicy);
  change.request.name = branch;
  change.request.policy = text;
  change.act = [&](Store* store) { return store->SetPolicy(policy, branch); };
  change.is_done = [&](Store* store) -> absl::StatusOr<bool> {
    const absl::StatusOr<PolicyInfo> info = store->Policy(branch);
    if (!info.ok()) return info.status();
    return info->text == text && !info->from_program;
  };
  return Make(change).status();
}

absl::StatusOr<std::vector<std::int64_t>> Changes::ApplyPolicy(
    const std::string& branch) {
  std::vector<std::int64_t> removed;
  Change change;
  change.request = RequestOf(RequestKind::kApplyPolicy);
  change.request.name = branch;
  change.act = [&](Store* store) -> absl::Status {
    absl::StatusOr<std::vector<std::int64_t>> steps =
        store->ApplyPolicy(branch);
    if (steps.ok()) removed = *std::move(steps);
    return steps.status();
  };
  change.is_done = [](Store*) -> absl::StatusOr<bool> { return false; };
  absl::StatusOr<StoreAnswer> answer = Make(change);
  if (!answer.ok()) return answer.status();
  if (!own_) return std::move(answer->removed);
  return removed;
}

absl::StatusOr<CollectReport> Changes::Collect(const CollectOptions& options,
                                               bool patient) {
  CollectReport report;
  Change change;
  change.request = RequestOf(RequestKind::kCollect);
  change.request.min_dead_fraction = options.min_dead_fraction;
  change.request.bytes_per_second = options.bytes_per_second;
  change.request.pack = options.pack;
  change.patient = patient;
  change.act = [&](Store* store) -> absl::Status {
    absl::StatusOr<CollectReport> made = store->Collect(options);
    if (made.ok()) report = *std::move(made);
    return made.status();
  };
  change.is_done = [](Store*) -> absl::StatusOr<bool> { return false; };
  absl::StatusOr<StoreAnswer> answer = Make(change);
  if (!answer.ok()) return answer.status();
  if (own_) return report;
  report.versions = answer->versions;
  report.blocks_freed = answer->blocks_freed;
  report.bytes_freed = answer->bytes_freed;
  report.far_bytes_freed = answer->far_bytes_freed;
  report.bytes_left = answer->bytes_left;
  report.files_dropped = answer->files_dropped;
  report.files_rewritten = answer->files_rewritten;
  report.bytes_written = answer->bytes_written;
  report.files_packed = answer->files_packed;
  report.file_bytes_before = answer->file_bytes_before;
  report.file_bytes_after = answer->file_bytes_after;
  for (schema::KeptByCollection& kept : answer->kept) {
    report.kept.push_back({kept.step, kept.version, std::move(kept.why)});
  }
  report.damaged = std::move(answer->damaged);
  report.no_room = std::move(answer->no_room);
  return report;
}

absl::Status Changes::Close() {
  if (!by_.empty()) {
    session_.Note(absl::StrFormat("done by %s, which has the store open", by_));
  } else if (const std::string remote = store()->Info().shipped_to;
             changed_ && !remote.empty()) {
    session_.Note(absl::StrFormat(
        "done in this directory; %s follows when it is next opened with that "
        "remote",
        remote));
  }
  return NotClosed(store()->Close(), changed_ ? "what was asked is done" : "");
}

}  // namespace ckptree::tools
