// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/member.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/option_check.h"
#include "core/engine/store_engine.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/ranks/meeting.h"
#include "core/ranks/part_build.h"
#include "core/version/base_loader.h"
#include "kv/file_system.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "kv/timed_wait.h"
#include "schema/keys.h"
#include "schema/step_record.h"

namespace ckptree::internal {

using schema::MailKind;
using schema::RankMail;

namespace {

// While a part is built, the coordinator's mailbox is read this often.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

RankMail MailOf(MailKind kind, const StepCall& call) {
  RankMail mail;
  mail.kind = kind;
  mail.step = call.first;
  mail.nth = call.second;
  return mail;
}

// The folder of a rank that shares none with rank 0, made anew, beside its
// directory: that may be a store, of a run in which it was rank 0. What a
// process of that rank left there goes.
absl::StatusOr<std::string> MakeOwnStaging(const std::string& directory,
                                           const RankOptions& options,
                                           const kv::Options& kv_options,
                                           std::uint64_t nonce) {
  std::string folder = directory + "-parts";
  CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(kv_options, folder));
  absl::StrAppend(&folder, "/", MailFolderName(options.job));
  CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(kv_options, folder));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           kv::ListDirectory(kv_options, folder));
  for (const std::string& name : names) {
    std::uint32_t rank = 0;
    std::uint64_t other = 0;
    if (!ParseRankBox(name, &rank, &other) ||
        rank != static_cast<std::uint32_t>(options.rank)) {
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(kv::RemoveTree(kv_options, folder + "/" + name));
  }
  absl::StrAppend(&folder, "/",
                  RankBox(static_cast<std::uint32_t>(options.rank), nonce));
  CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(kv_options, folder));
  return folder;
}

// With the folders above, where nobody else has anything in them.
void RemoveOwnStaging(const std::string& folder,
                      const kv::Options& kv_options) {
  kv::RemoveTree(kv_options, folder).IgnoreError();
  std::error_code in_use;
  std::filesystem::path above = std::filesystem::path(folder).parent_path();
  if (std::filesystem::remove(above, in_use)) {
    std::filesystem::remove(above.parent_path(), in_use);
  }
}

void Watch(const std::string& path, std::optional<kv::FileWatch>* watch) {
  if (!path.empty()) watch->emplace(path);
}

Backoff BackoffOf(const MailPlace& place, std::optional<kv::FileWatch>& watch,
                  absl::Duration deadline) {
  return Backoff(place.pace(), watch.has_value() ? &*watch : nullptr, deadline);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Member>> Member::Meet(
    const std::string& directory, const RankOptions& options,
    const std::shared_ptr<void>& file_system) {
  Meeting meeting(directory, options, file_system);
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(CoordinatorMail mail, meeting.FindCoordinator());
    // Rank 0 ships what all of them save.
    StoreOptions store = WithoutRemote(options.store);
    store.read_only = true;
    store.create_if_missing = false;
    absl::StatusOr<std::shared_ptr<Engine>> engine =
        options.shared_folder
            ? Engine::Open(directory, {.store = std::move(store),
                                       .file_system = file_system,
                                       .shared_folder = true})
            : Engine::OpenByAddress(
                  options.store.remote,
                  {.store = std::move(store), .file_system = file_system});
    const std::uint64_t nonce = NewNonce();
    mail.SetOwn(nonce);
    RankMail hello;
    hello.kind = MailKind::kHello;
    hello.rank = static_cast<std::uint32_t>(options.rank);
    hello.world = static_cast<std::uint32_t>(options.world);
    hello.nonce = nonce;
    hello.session = mail.open()->session;
    hello.job = options.job;
    hello.host = HostName();
    hello.pid = static_cast<std::uint32_t>(getpid());
    hello.code = static_cast<std::uint32_t>(engine.status().raw_code());
    hello.text = std::string(engine.status().message());
    if (engine.ok()) {
      hello.uuid = (*engine)->store_record().uuid;
      (*engine)->SetPatience(options.deadline);
    }
    const std::string box = RankBox(hello.rank, nonce);
    auto own = std::make_unique<MailWriter>(
        meeting.place()->Write(box),
        BeatOf(options.deadline, meeting.place()->pace()));
    const absl::Status said = own->Post(hello);
    // Of a coordinator that is gone nothing is to be learned.
    if (!mail.Poll().ok() && mail.WelcomeOf(nonce) == nullptr) continue;
    CKPTREE_RETURN_IF_ERROR(engine.status());
    CKPTREE_RETURN_IF_ERROR(said);
    Places places{meeting.place(), meeting.remote(),
                  (*engine)->database().staging_directory()};
    if (places.remote != nullptr) {
      absl::StatusOr<std::string> staging =
          MakeOwnStaging(directory, options, meeting.kv_options(), nonce);
      if (!staging.ok()) own->Close();
      CKPTREE_RETURN_IF_ERROR(staging.status());
      places.staging = *std::move(staging);
    }
    const absl::StatusOr<bool> welcome = meeting.AwaitWelcome(nonce, &mail);
    if (!welcome.ok()) {
      own->Close();  // The others are not to count on it.
      return welcome.status();
    }
    if (!*welcome) continue;
    return std::unique_ptr<Member>(new Member(*std::move(engine), options,
                                              std::move(places), nonce,
                                              std::move(own), std::move(mail)));
  }
}

Member::Member(std::shared_ptr<Engine> engine, const RankOptions& options,
               Places places, std::uint64_t nonce,
               std::unique_ptr<MailWriter> mail, CoordinatorMail coordinator)
    : engine_(std::move(engine)),
      options_(options),
      nonce_(nonce),
      places_(std::move(places)),
      mail_writer_(std::move(mail)),
      mail_(*mail_writer_),
      coordinator_(std::move(coordinator)),
      before_(coordinator_.before()),
      heartbeat_(&mail_, BeatOf(options.deadline, places_.mail->pace())),
      stager_(&engine_->database(), &engine_->arena(), &engine_->pool(),
              engine_->options().staging_idle, &engine_->logger()),
      hearing_(places_.mail.get(), /*keeps_told=*/true),
      met_(coordinator_.open()->nonce) {
  Watch(places_.mail->Watched(kCoordinatorBox), &watch_);
  Watch(places_.mail->Watched(kCoordinatorBox), &hearing_watch_);
  thread_ = std::thread([this] { Loop(); });
}

Backoff Member::WorkingBackoff() {
  return BackoffOf(*places_.mail, watch_, options_.deadline);
}

Backoff Member::HearingBackoff() {
  return BackoffOf(*places_.mail, hearing_watch_, options_.deadline);
}

Member::~Member() { Close(); }

bool Member::Submit(const std::shared_ptr<Save>& save) {
  const absl::MutexLock lock(&mu_);
  if (!EngineThread::IsOf(&engine_->database())) {
    mu_.Await(absl::Condition(this, &Member::HasRoom));
  }
  if (closing_) return false;
  // Which call it is will be known at its turn.
  Post(MailOf(MailKind::kBegun, {save->step, 0}));
  queue_.push_back({save, {save->step, 0}});
  // All or nothing, where there is no memory.
  absl::Cleanup undo = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    queue_.pop_back();
  };
  stager_.Add(save);
  std::move(undo).Cancel();
  ++submitted_;
  return true;
}

Member::Count& Member::CountOf(std::int64_t step) {
  const auto [it, is_new] = counts_.try_emplace(step);
  if (is_new) {
    const auto before = before_.find(step);
    if (before != before_.end()) it->second.next = before->second + 1;
  }
  return it->second;
}

void Member::Refuse(std::int64_t step, const absl::Status& why) {
  const absl::MutexLock lock(&counts_mu_);
  Count& count = CountOf(step);
  count.gave_up = false;
  SayFailed({step, count.next++}, why);
}

StepCall Member::NextCall(std::int64_t step) {
  const absl::MutexLock lock(&counts_mu_);
  Count& count = CountOf(step);
  for (; count.next <= coordinator_.newest(step); ++count.next) {
    const StepCall call(step, count.next);
    const RankMail* const outcome = coordinator_.OutcomeOf(call);
    if (outcome == nullptr && coordinator_.PlanOf(call) == nullptr) continue;
    // It waited in vain, for this rank perhaps, which was not in the call: that
    // is over. Any other outcome is told.
    const bool missed =
        outcome != nullptr &&
        StatusOf(*outcome).code() == absl::StatusCode::kDeadlineExceeded;
    if (!std::exchange(count.gave_up, false) && !missed) break;
  }
  const StepCall call(step, count.next);
  if (std::exchange(count.gave_up, false)) {
    // The coordinator has not come to that yet: it does not fail any more.
    Post(MailOf(MailKind::kBegun, call));
  }
  return call;
}

void Member::EndCall(const StepCall& call) {
  const absl::MutexLock lock(&counts_mu_);
  Count& count = CountOf(call.first);
  if (coordinator_.newest(call.first) >= call.second) {
    count = {call.second + 1, false};
  } else {
    count.gave_up = true;
  }
}

void Member::SayFailed(const StepCall& call, const absl::Status& why) {
  RankMail mail = MailOf(MailKind::kFailed, call);
  mail.code = static_cast<std::uint32_t>(why.raw_code());
  mail.text = std::string(why.message());
  Post(mail);
}

void Member::Post(const RankMail& mail) {
  if (const absl::Status posted = mail_.PostOrKeep(mail); !posted.ok()) {
    engine_->logger().Log(LogSeverity::kWarning, "ranks", posted);
  }
}

absl::Status Member::Listen(const std::string& topic,
                            std::deque<RankMail>* told, absl::Time* heard) {
  const absl::MutexLock lock(&hearing_mu_);
  absl::Status status = hearing_.Poll();
  // Another one may have come before this rank listened for the first time.
  if (status.ok() && hearing_.open().has_value() &&
      hearing_.open()->nonce != met_) {
    status = CoordinatorGone();
  }
  *heard = hearing_.heard();
  for (RankMail& mail : hearing_.TakeTold(topic)) {
    told->push_back(std::move(mail));
  }
  return status;
}

absl::Status Member::Notice(const std::string& topic,
                            const absl::Status& status) {
  RankMail mail;
  mail.kind = MailKind::kNotice;
  mail.topic = topic;
  mail.code = static_cast<std::uint32_t>(status.raw_code());
  mail.text = std::string(status.message());
  return mail_.PostOrKeep(mail);
}

std::string Member::DescribeCoordinator() const {
  const absl::MutexLock lock(&hearing_mu_);
  return hearing_.Describe();
}

absl::Status Member::WaitIdle(absl::Duration timeout) {
  const absl::MutexLock lock(&mu_);
  const std::uint64_t last = submitted_;
  const auto done = [this, last]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return ended_ >= last;
  };
  const bool over = kv::AwaitFor(mu_, absl::Condition(&done), timeout);
  if (over) return absl::OkStatus();
  return absl::DeadlineExceededError("saves are still in flight; they go on");
}

void Member::Close() {
  {
    const absl::MutexLock lock(&mu_);
    closing_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
    // After what it said of all its saves.
    mail_.Close();
    if (places_.remote != nullptr) {
      RemoveOwnStaging(places_.staging, engine_->kv_options());
    }
  }
  stager_.Stop();
}

void Member::Loop() {
  const EngineThread here(&engine_->database());
  while (true) {
    Job job;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Member::HasWork));
      if (queue_.empty()) return;  // Closing.
      job = queue_.front();
    }
    std::uint64_t version = 0;
    heartbeat_.Begin();
    const absl::Status status = GuardedStatus("saving", [&] {
      // What cannot be read now is there the next time.
      coordinator_.Poll().IgnoreError();
      job.call = NextCall(job.save->step);
      return Run(job, &version);
    });
    if (job.call.second > 0) EndCall(job.call);
    heartbeat_.End();
    if (const auto content = job.save->staged_content()) content->Abandon();
    if (const absl::Status thrown = job.save->Finish(status, version);
        !thrown.ok()) {
      engine_->logger().Log(LogSeverity::kError, "save", thrown);
    }
    if (!status.ok() && !absl::IsCancelled(status) &&
        job.save->FailedUnseen()) {
      engine_->logger().Log(LogSeverity::kError, "save", status);
    }
    stager_.Ended();
    const bool asked = absl::IsCancelled(status) && job.save->cancelled();
    if (!status.ok() && !asked) {
      GuardedCall("Add", [&] { failed_.Add(job.save); }).IgnoreError();
    }
    job.save.reset();
    const absl::MutexLock lock(&mu_);
    queue_.pop_front();
    ++ended_;
  }
}

absl::Status Member::Run(const Job& job, std::uint64_t* version) {
  const auto annotate = [&](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrFormat("step %d was not saved: rank %d: %s", job.call.first,
                        options_.rank, status.message()));
  };
  absl::StatusOr<schema::RankPlan> plan = AwaitPlan(job);
  if (const auto told = Told(job.call); told.has_value() && !told->ok()) {
    return *told;
  }
  absl::Status status = plan.status();
  bool handed = false;
  if (status.ok()) {
    job.save->SetPhase(Progress::Phase::kWriting);
    status = Build(job, *plan, &handed);
  }
  if (!status.ok()) {
    // The others are not to wait for it.
    SayFailed(job.call, status);
    if (const auto told = Told(job.call); told.has_value() && !told->ok()) {
      return *told;
    }
    const bool ended =
        plan.ok() && absl::IsNotFound(status) &&
        IsGivenUp({places_.staging, places_.remote.get()}, *plan);
    if (!handed && !ended) return annotate(status);
    // The coordinator may have the part all the same, or says why it needs none
    // any more.
  }
  job.save->SetPhase(Progress::Phase::kCommitting);
  status = AwaitOutcome(job, *plan);
  if (!status.ok()) return status;
  *version = plan->version;
  // What was committed is seen by those who are told so. Where nobody told, the
  // store did.
  const RankMail* const outcome = coordinator_.OutcomeOf(job.call);
  if (outcome == nullptr) return absl::OkStatus();
  const absl::Status seen = AwaitCommit(engine_.get(), outcome->ordinal);
  if (!seen.ok()) {
    engine_->logger().Log(LogSeverity::kWarning, "ranks", seen);
  }
  return absl::OkStatus();
}

absl::Status Member::Build(const Job& job, const schema::RankPlan& plan,
                           bool* handed) {
  Builder builder;
  builder.rank = static_cast<std::uint16_t>(options_.rank);
  builder.nonce = nonce_;
  builder.planned = kv::MonotonicNow();
  absl::Mutex mu;
  absl::Time looked = builder.planned;
  absl::Status ended;
  const std::thread::id self = std::this_thread::get_id();
  const auto check = [&]() -> absl::Status {
    if (job.save->cancelled()) return absl::CancelledError("it was cancelled");
    mail_.Beat();
    // The mailbox is this thread's; the others learn from it.
    const absl::MutexLock lock(&mu);
    if (std::this_thread::get_id() == self &&
        kv::MonotonicNow() - looked > places_.mail->pace().building) {
      looked = kv::MonotonicNow();
      ended = coordinator_.Poll();
      if (const auto told = Told(job.call); told.has_value()) ended = *told;
    }
    return ended;
  };
  const PartPlace place{places_.staging, places_.remote.get()};
  const absl::Cleanup clean = [&] { RemoveBuilt(plan); };
  CKPTREE_ASSIGN_OR_RETURN(
      PartResult part,
      BuildPart(engine_.get(), place, plan, builder, job.save->content.get(),
                &job.save->counters, check));
  RankMail mail = MailOf(MailKind::kHandoff, job.call);
  CKPTREE_ASSIGN_OR_RETURN(mail.body, HandOver(*engine_, place, plan, builder,
                                               std::move(part), check));
  *handed = true;
  handed_at_ = mail_.written();
  return mail_.Post(mail);
}

void Member::RemoveBuilt(const schema::RankPlan& plan) {
  if (places_.remote == nullptr) return;  // It is the coordinator's to remove.
  const absl::Status removed = kv::RemoveTree(
      engine_->kv_options(), AttemptFolder(places_.staging, plan));
  if (!removed.ok()) {
    engine_->logger().Log(LogSeverity::kWarning, "ranks", removed);
  }
}

}  // namespace ckptree::internal
