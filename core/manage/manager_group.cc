// SPDX-License-Identifier: Apache-2.0

// A manager of one rank among several: rank 0 decides.

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/manager.h"
#include "core/engine/step_builder.h"
#include "core/manage/manager_impl.h"
#include "core/manage/manager_ranks.h"
#include "core/process/guarded_call.h"

namespace ckptree {

using internal::GuardedResult;
using internal::ManagerRanks;

void CheckpointManager::Impl::PassOnPreemption() const {
  if (ranks == nullptr) return;
  bool came = watch.has_value() && internal::SigtermWatch::Noticed();
  {
    const absl::MutexLock lock(&mu);
    came = came || preemption_requested;
  }
  if (came) ranks->NotePreemption();
}

absl::StatusOr<ManagerRanks::Decision> CheckpointManager::Impl::Decided(
    bool yes) const {
  CKPTREE_ASSIGN_OR_RETURN(const auto latest, LatestBegun());
  return ManagerRanks::Decision{.yes = yes, .begun = yes || latest.has_value()};
}

absl::StatusOr<bool> CheckpointManager::Impl::ShouldSaveAmong(
    std::int64_t step, const std::function<bool()>& cancelled) const {
  PassOnPreemption();
  if (!ranks->MustAsk(step)) return false;
  return ranks->Ask("should_save", step, ManagerRanks::Waits::kWhileAsked,
                    cancelled, [&]() -> absl::StatusOr<ManagerRanks::Decision> {
                      CKPTREE_ASSIGN_OR_RETURN(const absl::Time now, Now());
                      CKPTREE_ASSIGN_OR_RETURN(
                          const bool save, Decide(step, now, Asked::kWhether));
                      absl::StatusOr<ManagerRanks::Decision> made =
                          Decided(false);
                      if (made.ok()) made->yes = save;
                      return made;
                    });
}

absl::StatusOr<std::optional<StepBuilder>> CheckpointManager::Impl::BeginAmong(
    std::int64_t step, const SaveArguments& arguments) {
  PassOnPreemption();
  const bool asks = arguments.force || arguments.overwrite;
  if (!asks && !ranks->MustAsk(step)) return std::optional<StepBuilder>();
  // All that can fail on rank 0 has come to pass when it tells.
  std::optional<StepBuilder> builder;
  bool told = false;
  const absl::StatusOr<bool> saved = ranks->Ask(
      "save", step,
      asks ? ManagerRanks::Waits::kAlways : ManagerRanks::Waits::kWhileAsked,
      arguments.cancelled,
      [&]() -> absl::StatusOr<ManagerRanks::Decision> {
        CKPTREE_ASSIGN_OR_RETURN(builder, BeginSave(step, arguments));
        return Decided(builder.has_value());
      },
      &told);
  if (ranks->decides()) {
    CKPTREE_RETURN_IF_ERROR(saved.status());
    return builder;
  }
  if (told) {
    // Where an earlier save failed there, it did here: told once, as there.
    CKPTREE_RETURN_IF_ERROR(
        WaitForRoom(0, options.save_timeout, arguments.cancelled));
    CKPTREE_RETURN_IF_ERROR(NextError());
    return absl::Status(saved.status().code(),
                        absl::StrCat("rank 0: ", saved.status().message()));
  }
  CKPTREE_ASSIGN_OR_RETURN(const bool saves, saved);
  if (!saves) return std::optional<StepBuilder>();
  CKPTREE_ASSIGN_OR_RETURN(builder, BeginPart(step, arguments));
  return builder;
}

absl::StatusOr<StepBuilder> CheckpointManager::Impl::BeginPart(
    std::int64_t step, const SaveArguments& arguments) {
  const auto most = static_cast<std::size_t>(options.max_saves_in_flight) - 1;
  absl::Status ready =
      WaitForRoom(most, options.save_timeout, arguments.cancelled);
  ready.Update(NextError());
  if (!ready.ok()) {
    // The others are not to wait for this rank.
    ranks->group().GiveUp(step, ready);
    return ready;
  }
  SaveOptions save_options;
  save_options.overwrite = arguments.overwrite;
  save_options.ignore_policy = MustSaveForPreemption();
  save_options.branch = Branch();
  StepBuilder builder = ranks->group().Begin(step, save_options);
  CKPTREE_RETURN_IF_ERROR(builder.status());
  return builder;
}

absl::Status CheckpointManager::Impl::GiveUp(StepBuilder builder,
                                             const absl::Status& why) {
  if (ranks == nullptr || builder.impl_ == nullptr) return why;
  // The others are told why, and not only that it was dropped.
  const SaveHandle handle = std::move(builder).Fail(why).Submit();
  handle.save_->is_of_manager.store(true);
  return why;
}

absl::Status CheckpointManager::Impl::Change(
    std::string_view call, std::int64_t step,
    const std::function<bool()>& cancelled,
    absl::FunctionRef<absl::Status()> change) const {
  if (read_only()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s of step %d: the manager reads only, and changes nothing", call,
        step));
  }
  if (ranks == nullptr) return change();
  const absl::StatusOr<bool> changed =
      ranks->Ask(call, step, ManagerRanks::Waits::kAlways, cancelled,
                 [&]() -> absl::StatusOr<ManagerRanks::Decision> {
                   CKPTREE_RETURN_IF_ERROR(change());
                   // Others see what is there alone, and look at once.
                   internal::GroupRank& group = ranks->group();
                   if (!group.options().shared_folder) {
                     CKPTREE_RETURN_IF_ERROR(
                         group.store().WaitReplicated(options.save_timeout));
                   }
                   return Decided(false);
                 });
  CKPTREE_RETURN_IF_ERROR(changed.status());
  return ranks->decides() ? absl::OkStatus() : store.engine_->Refresh();
}

absl::Status CheckpointManager::GiveUpSave(std::int64_t step,
                                           const absl::Status& why,
                                           const SaveArguments& arguments) {
  return GuardedResult("GiveUpSave", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    if (impl_->ranks == nullptr || impl_->read_only()) return absl::OkStatus();
    impl_->PassOnPreemption();
    const bool asks = arguments.force || arguments.overwrite;
    if (!asks && !impl_->ranks->MustAsk(step)) return absl::OkStatus();
    // A begun save tells what failed before it, and here nobody would hear it.
    CKPTREE_RETURN_IF_ERROR(impl_->WaitForRoom(0, impl_->options.save_timeout,
                                               arguments.cancelled));
    std::list<absl::Status> untold;
    {
      const absl::MutexLock lock(&impl_->mu);
      untold.swap(impl_->errors);
    }
    absl::StatusOr<std::optional<StepBuilder>> builder = GuardedResult(
        "BeginSave", [&] { return impl_->BeginAmong(step, arguments); });
    {
      const absl::MutexLock lock(&impl_->mu);
      impl_->errors.splice(impl_->errors.begin(), untold);
    }
    CKPTREE_RETURN_IF_ERROR(builder.status());
    if (builder->has_value()) {
      impl_->GiveUp(**std::move(builder), why).IgnoreError();
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> CheckpointManager::ReachedPreemption(
    std::int64_t step, const std::function<bool()>& cancelled) const {
  return GuardedResult("ReachedPreemption", [&]() -> absl::StatusOr<bool> {
    CKPTREE_RETURN_IF_ERROR(impl_->CheckUsable());
    if (impl_->ranks == nullptr || impl_->Preempted())
      return impl_->Preempted();
    impl_->PassOnPreemption();
    const absl::StatusOr<bool> told = impl_->ranks->Ask(
        "reached_preemption", step, ManagerRanks::Waits::kAlways, cancelled,
        [&] { return impl_->Decided(false); });
    CKPTREE_RETURN_IF_ERROR(told.status());
    return impl_->Preempted();
  });
}

}  // namespace ckptree
