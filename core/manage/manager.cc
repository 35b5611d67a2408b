// SPDX-License-Identifier: Apache-2.0

#include "ckptree/manager.h"

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/engine/store_engine.h"
#include "core/manage/manager_impl.h"
#include "core/process/guarded_call.h"
#include "core/version/step_health.h"
#include "kv/monotonic.h"

namespace ckptree {

using internal::GuardedResult;

namespace {

using Begun = internal::BegunSave;

Begun BegunOf(const StepInfo& info) {
  return {info.step, info.begun, info.metrics, internal::IsHealthy(info)};
}

Begun BegunOf(const internal::Save& save) {
  return {save.step, absl::FromUnixNanos(save.begun_ns), save.metrics,
          /*healthy=*/false};
}

}  // namespace

std::vector<Begun> CheckpointManager::Impl::AllInFlight() const {
  const internal::StepWriter* const writer = store.engine_->writer();
  const absl::StatusOr<std::uint32_t> number =
      store.engine_->catalog().FindBranch(Branch());
  std::vector<Begun> all;
  if (writer == nullptr || !number.ok()) return all;
  for (const auto& save : writer->InFlight()) {
    if (save->branch == *number) all.push_back(BegunOf(*save));
  }
  return all;
}

absl::Status CheckpointManager::Impl::CheckUsable() const {
  CKPTREE_RETURN_IF_ERROR(store.engine_->CheckUsable());
  const absl::MutexLock lock(&mu);
  if (!closed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the manager of %s was closed", store.engine_->directory()));
}

absl::Status CheckpointManager::Impl::CheckBranch() const {
  return store.engine_->catalog().FindBranch(Branch()).status();
}

absl::StatusOr<std::optional<Begun>> CheckpointManager::Impl::LatestBegun()
    const {
  Settle();
  std::optional<Begun> latest;
  for (Begun& save : AllInFlight()) {
    if (!latest.has_value() || save.step > latest->step) {
      latest = std::move(save);
    }
  }
  // After that: what was in flight no more is listed by now.
  const absl::StatusOr<StepInfo> info = store.Resolve(OnBranch(Latest()));
  if (absl::IsNotFound(info.status())) {
    CKPTREE_RETURN_IF_ERROR(CheckBranch());
    return latest;
  }
  CKPTREE_RETURN_IF_ERROR(info.status());
  if (!latest.has_value() || info->step > latest->step) latest = BegunOf(*info);
  return latest;
}

StepSelector CheckpointManager::Impl::OnBranch(StepSelector selector) const {
  if (selector.branch.empty() && selector.kind != StepSelector::Kind::kTag) {
    selector.branch = Branch();
  }
  return selector;
}

bool CheckpointManager::Impl::Preempted() const {
  if (ranks != nullptr) return ranks->preempted();
  const absl::MutexLock lock(&mu);
  return (preemption_requested ||
          (watch.has_value() && internal::SigtermWatch::Noticed()));
}

bool CheckpointManager::Impl::MustSaveForPreemption() const {
  if (ranks != nullptr) return ranks->must_save();
  if (!Preempted()) return false;
  return !SavedForPreemption();
}

bool CheckpointManager::Impl::SavedForPreemption() const {
  const absl::MutexLock lock(&mu);
  // It may have outlived its wait.
  return saved_for_preemption ||
         (for_preemption.has_value() && for_preemption->version() != 0);
}

// ---- opening and closing ----

absl::Status Check(const ManagerOptions& options) {
  return internal::CheckManagerOptions(options);
}

absl::StatusOr<CheckpointManager> CheckpointManager::Open(
    const std::string& directory, ManagerOptions options) {
  return GuardedResult("Open", [&]() -> absl::StatusOr<CheckpointManager> {
    // A branch is of a store that is there.
    if (options.store.read_only || !options.branch.empty()) {
      options.store.create_if_missing = false;
    }
    CKPTREE_RETURN_IF_ERROR(Check(options));
    options.store.max_saves_in_flight = std::max(
        options.store.max_saves_in_flight, options.max_saves_in_flight);
    CKPTREE_ASSIGN_OR_RETURN(Store store,
                             Store::Open(directory, options.store));
    auto impl = std::make_unique<Impl>(std::move(store), std::move(options),
                                       /*own_store=*/true);
    CKPTREE_RETURN_IF_ERROR(impl->SetUp());
    return CheckpointManager(std::move(impl));
  });
}

CheckpointManager::CheckpointManager(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;

CheckpointManager& CheckpointManager::operator=(
    CheckpointManager&& other) noexcept {
  CheckpointManager next(std::move(other));
  impl_.swap(next.impl_);
  return *this;
}

CheckpointManager::~CheckpointManager() {
  if (impl_ == nullptr) return;
  if (impl_->engine().forked()) {
    // The threads of the saves are in the parent: nothing can be waited for.
    impl_.release();
    return;
  }
  if (impl_->engine().IsInCallback()) {
    // Of saves that go on the store tells what nobody asked for, as it does
    // where it closes: a thread of its own does that, where this has it.
    impl_->LeaveSaves();
    return;
  }
  if (const absl::Status status = Close(); !status.ok()) {
    impl_->engine().logger().Log(LogSeverity::kError, "manager", status);
  }
}

absl::Status CheckpointManager::Close() {
  // A forked child has none of the threads, and maybe a lock that none frees.
  if (impl_->engine().forked()) return impl_->engine().CheckUsable();
  if (impl_->engine().IsInCallback()) {
    return absl::FailedPreconditionError(
        "a callback of the store must not close a manager of it: closing waits "
        "for the callback");
  }
  {
    const absl::MutexLock lock(&impl_->mu);
    if (std::exchange(impl_->closed, true)) {
      if (!impl_->own_store) return absl::OkStatus();
      // Whoever closes as well waits until it is closed, and is told nothing.
      return impl_->store.Close();
    }
  }
  impl_->LeaveTurns();
  absl::Status status = internal::GuardedStatus("Close", [&] {
    absl::Status waited = impl_->WaitForRoom(0, absl::InfiniteDuration());
    waited.Update(impl_->NextProblem());
    return waited;
  });
  if (impl_->own_store) status.Update(impl_->store.Close());
  return status;
}

// ---- saving ----

absl::StatusOr<bool> CheckpointManager::Impl::Decide(std::int64_t step,
                                                     absl::Time now,
                                                     Asked asked) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<Begun> latest, LatestBegun());
  if (latest.has_value() && latest->step >= step) {
    if (asked == Asked::kToSave) WarnOfEarlier(step, latest->step);
    return false;
  }
  SaveQuestion question;
  question.step = {.step = step, .time = now};
  if (latest.has_value()) question.latest = latest->AsPolicyStep();
  std::map<std::int64_t, Begun> all;
  question.previous = [this, &all]() -> std::vector<PolicyStep> {
    if (all.empty()) {
      for (Begun& save : AllInFlight()) all[save.step] = std::move(save);
      if (const auto steps = store.Steps(Branch()); steps.ok()) {
        for (const StepInfo& info : *steps) all[info.step] = BegunOf(info);
      }
    }
    std::vector<PolicyStep> previous;
    for (const auto& [n, entry] : all) previous.push_back(entry.AsPolicyStep());
    return previous;
  };
  {
    const absl::MutexLock lock(&mu);
    question.saving_in_progress =
        options.see_saves_in_progress && !in_flight.empty();
  }
  question.preempted = MustSaveForPreemption();
  return ckptree::ShouldSave(decision, question);
}

bool CheckpointManager::Impl::IsThere(std::int64_t step) const {
  const std::vector<Begun> saves = AllInFlight();
  return std::any_of(saves.begin(), saves.end(),
                     [step](const Begun& save) { return save.step == step; }) ||
         store.Resolve(AtStep(step, Branch())).ok();
}

void CheckpointManager::Impl::WarnOfEarlier(std::int64_t step,
                                            std::int64_t latest) const {
  if (warned.exchange(true)) return;
  engine().logger().Log(
      LogSeverity::kWarning, "save",
      absl::StrFormat(
          "step %d was not saved: it is not after step %d, the latest. To go "
          "on from an older step delete the later ones, or save with force. "
          "This is said once",
          step, latest));
}

void CheckpointManager::Impl::WarnOfUnmeasured(
    const std::vector<std::pair<std::string, double>>& metrics) {
  if (!limit.has_value()) return;
  const auto is_given = [this](const auto& all) {
    return std::any_of(all.begin(), all.end(), [this](const auto& metric) {
      return metric.first == limit->metric;
    });
  };
  {
    const absl::MutexLock lock(&mu);
    if (!unmeasured.has_value()) return;
    if (is_given(metrics)) {
      unmeasured.reset();
      return;
    }
    if (++*unmeasured <= *limit->n) return;
    unmeasured.reset();
  }
  const absl::StatusOr<std::vector<StepInfo>> steps = store.Steps(Branch());
  if (!steps.ok()) return;
  for (const StepInfo& info : *steps) {
    if (is_given(info.metrics)) return;
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  engine().logger().Log(
      LogSeverity::kWarning, "save",
      absl::StrFormat(
          "no step has the metric '%s', by which the best %d stay: so all of "
          "them stay. The metrics of this save: %s. This is said once",
          limit->metric, *limit->n,
          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<bool> CheckpointManager::ShouldSave(
    std::int64_t step, const std::function<bool()>& cancelled) const {
  return GuardedResult("ShouldSave", [&]() -> absl::StatusOr<bool> {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    if (impl_->read_only()) return false;
    if (impl_->ranks != nullptr) return impl_->ShouldSaveAmong(step, cancelled);
    CKPTREE_ASSIGN_OR_RETURN(const absl::Time now, impl_->Now());
    return impl_->Decide(step, now, Impl::Asked::kWhether);
  });
}

absl::StatusOr<std::optional<StepBuilder>> CheckpointManager::Impl::BeginSave(
    std::int64_t step, const SaveArguments& arguments) {
  CKPTREE_RETURN_IF_ERROR(NextError());
  if (read_only()) {
    if (!arguments.force) return std::optional<StepBuilder>();
    return absl::FailedPreconditionError(
        absl::StrFormat("step %d was not saved: the manager reads only", step));
  }
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time now, Now());
  if (!arguments.force && !(arguments.overwrite && IsThere(step))) {
    CKPTREE_ASSIGN_OR_RETURN(const bool save,
                             Decide(step, now, Asked::kToSave));
    if (!save) return std::optional<StepBuilder>();
  }
  const auto most = static_cast<std::size_t>(options.max_saves_in_flight) - 1;
  CKPTREE_RETURN_IF_ERROR(
      WaitForRoom(most, options.save_timeout, arguments.cancelled));
  CKPTREE_RETURN_IF_ERROR(NextError());
  SaveOptions save_options;
  save_options.overwrite = arguments.overwrite;
  save_options.time = now;
  // What is saved to go on from is not dropped for being no better.
  save_options.ignore_policy = MustSaveForPreemption();
  save_options.branch = Branch();
  for (const Begun& save : AllInFlight()) {
    if (save.step != step || arguments.overwrite) continue;
    return absl::AlreadyExistsError(
        absl::StrFormat("step %d is being saved already", step));
  }
  CKPTREE_RETURN_IF_ERROR(TakeTurn());
  WarnOfUnmeasured(arguments.metrics);
  StepBuilder builder = ranks != nullptr
                            ? ranks->group().Begin(step, save_options)
                            : store.Begin(step, std::move(save_options));
  for (const auto& [name, value] : arguments.metrics) {
    builder.SetMetric(name, value);
  }
  if (!arguments.custom_metadata.empty()) {
    builder.SetCustomMetadata(arguments.custom_metadata);
  }
  if (!arguments.note.empty()) builder.SetNote(arguments.note);
  CKPTREE_RETURN_IF_ERROR(builder.status());
  return std::optional<StepBuilder>(std::move(builder));
}

absl::StatusOr<std::optional<StepBuilder>> CheckpointManager::BeginSave(
    std::int64_t step, const SaveArguments& arguments) {
  return GuardedResult("BeginSave",
                       [&]() -> absl::StatusOr<std::optional<StepBuilder>> {
                         CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
                         if (impl_->ranks != nullptr)
                           return impl_->BeginAmong(step, arguments);
                         return impl_->BeginSave(step, arguments);
                       });
}

absl::Status CheckpointManager::EndSave(StepBuilder builder) {
  return GuardedResult("EndSave", [&]() -> absl::Status {
    return impl_->EndSave(std::move(builder), /*waits=*/true);
  });
}

absl::Status CheckpointManager::SubmitSave(StepBuilder builder) {
  return GuardedResult("SubmitSave", [&]() -> absl::Status {
    return impl_->EndSave(std::move(builder), /*waits=*/false);
  });
}

absl::Status CheckpointManager::Impl::EndSave(StepBuilder builder, bool waits) {
  CKPTREE_RETURN_IF_ERROR(CheckUsable());
  if (const internal::Engine& of = *builder.impl().engine; &of != &engine()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the step was begun in %s, and this manager saves to %s",
        of.directory(), engine().directory()));
  }
  if (const absl::Status mistake = builder.status(); !mistake.ok()) {
    return GiveUp(std::move(builder), mistake);
  }
  const bool preempted = MustSaveForPreemption();
  std::list<SaveHandle> one(1);  // Room, before the save is under way.
  SaveHandle handle = std::move(builder).Submit();
  handle.save_->is_of_manager.store(true);
  one.front() = handle;
  {
    const absl::MutexLock lock(&mu);
    in_flight.splice(in_flight.end(), one);
    last = handle;
    if (preempted) for_preemption = handle;
  }
  // Already in flight: whoever asks now sees it.
  if (waits) handle.WaitCopied();
  if (!preempted) return absl::OkStatus();
  // Of this save alone: what else failed is told by the next call.
  CKPTREE_RETURN_IF_ERROR(
      WaitForSave(handle, kv::MonotonicNow() + options.save_timeout));
  if (handle.version() == 0) {
    CKPTREE_RETURN_IF_ERROR(NextError());
    // Another thread was told why, or nobody is: it was cancelled. Who waits
    // for this save is not to take it for made.
    const absl::Status why = handle.WaitCommitted(absl::ZeroDuration());
    return ranks != nullptr && absl::IsDeadlineExceeded(why)
               ? absl::UnavailableError(why.message())
               : why;
  }
  if (ranks != nullptr) ranks->NoteSavedForPreemption();
  const absl::MutexLock lock(&mu);
  saved_for_preemption = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointManager::Save(
    std::int64_t step, absl::FunctionRef<absl::Status(StepBuilder&)> fill,
    const SaveArguments& arguments) {
  return GuardedResult("Save", [&]() -> absl::StatusOr<bool> {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<StepBuilder> builder,
                             BeginSave(step, arguments));
    if (!builder.has_value()) return false;
    absl::Status filled = internal::GuardedStatus(
        "filling a step", [&] { return fill(*builder); });
    if (filled.ok() && builder->impl_ == nullptr) {
      filled = absl::InvalidArgumentError(
          absl::StrFormat("step %d: `fill` committed the builder, or moved it "
                          "away: it only puts the step together, and Save() "
                          "commits it",
                          step));
    }
    if (!filled.ok()) return impl_->GiveUp(*std::move(builder), filled);
    CKPTREE_RETURN_IF_ERROR(EndSave(*std::move(builder)));
    return true;
  });
}

SaveHandle CheckpointManager::LastSave() const {
  const absl::MutexLock lock(&impl_->mu);
  return impl_->last;
}

// ---- preemption ----

void CheckpointManager::RequestPreemption() {
  {
    const absl::MutexLock lock(&impl_->mu);
    impl_->preemption_requested = true;
  }
  impl_->PassOnPreemption();
}

bool CheckpointManager::ReachedPreemption() const { return impl_->Preempted(); }

bool CheckpointManager::SavedForPreemption() const {
  return impl_->SavedForPreemption();
}

// ---- changing ----

absl::Status CheckpointManager::Delete(std::int64_t step,
                                       const DeleteOptions& options,
                                       const std::function<bool()>& cancelled) {
  return GuardedResult("Delete", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    return impl_->Change("Delete", step, cancelled, [&] {
      return impl_->store.Delete(AtStep(step, impl_->Branch()), options);
    });
  });
}

absl::Status CheckpointManager::DeleteAfter(
    std::int64_t step, const DeleteOptions& options,
    const std::function<bool()>& cancelled) {
  return GuardedResult("DeleteAfter", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(impl_->WaitToRead());
    return impl_->Change("DeleteAfter", step, cancelled, [&]() -> absl::Status {
      const std::string branch = impl_->Branch();
      CKPTREE_RETURN_IF_ERROR(
          impl_->store.Resolve(AtStep(step, branch)).status());
      CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                               impl_->store.Steps(branch));
      std::vector<StepSelector> later;
      for (const StepInfo& info : steps) {
        if (info.step > step) later.push_back(AtStep(info.step, branch));
      }
      return impl_->store.Delete(later, options);
    });
  });
}

absl::Status CheckpointManager::ForkFrom(
    std::int64_t step, std::string_view branch,
    const std::function<bool()>& cancelled) {
  return GuardedResult("ForkFrom", [&]() -> absl::Status {
    std::string name(branch);  // Room, before there is a fork.
    CKPTREE_RETURN_IF_ERROR(impl_->WaitToRead());
    CKPTREE_RETURN_IF_ERROR(impl_->Change("ForkFrom", step, cancelled, [&] {
      return impl_->Fork(step, branch);
    }));
    const absl::MutexLock lock(&impl_->mu);
    impl_->branch.swap(name);
    return absl::OkStatus();
  });
}

const std::string& CheckpointManager::directory() const {
  return impl_->engine().directory();
}

std::string CheckpointManager::branch() const { return impl_->Branch(); }

Store& CheckpointManager::store() { return impl_->store; }

}  // namespace ckptree
