// SPDX-License-Identifier: Apache-2.0

// A manager beside others on one open store: which options agree with it, and
// whose policy holds.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ckptree/manager.h"
#include "ckptree/policy.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/manage/manager_impl.h"
#include "core/manage/manager_ranks.h"
#include "core/policy/retention.h"
#include "core/process/guarded_call.h"
#include "core/ranks/group.h"
#include "core/save/coding_choice.h"

namespace ckptree {

using internal::GuardedResult;

namespace {

using internal::PolicyTurns;

std::string Shown(bool value) { return value ? "true" : "false"; }
std::string Shown(int value) { return absl::StrCat(value); }
std::string Shown(std::uint64_t value) { return absl::StrCat(value); }
std::string Shown(absl::Duration value) { return absl::FormatDuration(value); }
std::string Shown(const std::string& value) { return "'" + value + "'"; }
std::string Shown(Durable value) {
  return value == Durable::kLocal ? "kLocal" : "kRemote";
}
std::string Shown(Coding value) {
  return value == Coding::kNone     ? "kNone"
         : value == Coding::kPlanes ? "kPlanes"
                                    : "kAuto";
}

template <typename Value>
absl::Status CheckOption(const char* name, Value given, Value usual,
                         Value open) {
  if (given == usual || given == open) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is %s, and the store is open with %s: leave it out, or close the "
      "store first",
      name, Shown(given), Shown(open)));
}

// Of what a store does with its remote.
absl::Status CheckRemote(const StoreOptions& given, const StoreOptions& open) {
  const StoreOptions usual;
  // An address may have more in it than may be shown.
  if (given.remote != usual.remote && given.remote != open.remote) {
    return absl::FailedPreconditionError(
        "remote is not the one that the store is open with: leave it out, or "
        "close the store first");
  }
  CKPTREE_RETURN_IF_ERROR(
      CheckOption("durable", given.durable, usual.durable, open.durable));
  CKPTREE_RETURN_IF_ERROR(CheckOption("take_over", given.take_over,
                                      usual.take_over, open.take_over));
  CKPTREE_RETURN_IF_ERROR(CheckOption("remote_timeout", given.remote_timeout,
                                      usual.remote_timeout,
                                      open.remote_timeout));
  CKPTREE_RETURN_IF_ERROR(CheckOption("remote_grace", given.remote_grace,
                                      usual.remote_grace, open.remote_grace));
  const auto text = [](const StoreOptions& of) {
    return of.local_keep.has_value() ? Text(*of.local_keep)
                                     : std::string("not given");
  };
  return CheckOption("local_keep", text(given), text(usual), text(open));
}

// An option that says what it does without being given says nothing. `rank`:
// null in a process that is alone.
absl::Status CheckAgrees(const ManagerOptions& options,
                         const StoreOptions& open, const RankOptions* rank) {
  const StoreOptions& given = options.store;
  const StoreOptions usual;
  CKPTREE_RETURN_IF_ERROR(
      CheckOption("threads", given.threads, usual.threads, open.threads));
  CKPTREE_RETURN_IF_ERROR(CheckOption("permissions", given.permissions,
                                      usual.permissions, open.permissions));
  CKPTREE_RETURN_IF_ERROR(CheckOption("staging_bytes", given.staging_bytes,
                                      usual.staging_bytes, open.staging_bytes));
  CKPTREE_RETURN_IF_ERROR(CheckOption("staging_idle", given.staging_idle,
                                      usual.staging_idle, open.staging_idle));
  CKPTREE_RETURN_IF_ERROR(CheckOption(
      "StoreOptions::max_saves_in_flight", given.max_saves_in_flight,
      usual.max_saves_in_flight, open.max_saves_in_flight));
  CKPTREE_RETURN_IF_ERROR(CheckOption("chunk_bytes", given.chunk_bytes,
                                      usual.chunk_bytes, open.chunk_bytes));
  CKPTREE_RETURN_IF_ERROR(
      CheckOption("collect", given.collect, usual.collect, open.collect));
  CKPTREE_RETURN_IF_ERROR(CheckOption(
      "collect_bytes_per_second", given.collect_bytes_per_second,
      usual.collect_bytes_per_second, open.collect_bytes_per_second));
  CKPTREE_RETURN_IF_ERROR(CheckOption("statistics", given.statistics,
                                      usual.statistics, open.statistics));
  const Coding coding = internal::CodingOf(open);
  CKPTREE_RETURN_IF_ERROR(
      CheckOption("coding", given.coding.value_or(coding), coding, coding));
  // Of the ranks rank 0 alone has the remote.
  CKPTREE_RETURN_IF_ERROR(
      CheckRemote(given, rank != nullptr ? rank->store : open));
  if (given.log != nullptr || given.on_progress != nullptr ||
      given.cancelled != nullptr || given.host_allocator.allocate != nullptr) {
    return absl::FailedPreconditionError(
        "log, on_progress, cancelled and host_allocator are those that the "
        "store was opened with: leave them out");
  }
  if (options.max_saves_in_flight > open.max_saves_in_flight) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "max_saves_in_flight is %d, and the store is open with %d: give it at "
        "most that, or open the store with more",
        options.max_saves_in_flight, open.max_saves_in_flight));
  }
  if (open.read_only && !given.read_only && rank == nullptr) {
    return absl::FailedPreconditionError(
        "read_only is false, and the store is open with true: a manager over "
        "it can only read");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointManager> CheckpointManager::Over(
    const Store& store, ManagerOptions options) {
  return GuardedResult("Over", [&]() -> absl::StatusOr<CheckpointManager> {
    CKPTREE_RETURN_IF_ERROR(Check(options));
    const internal::Engine& engine = internal::StoreEngine::Of(store);
    CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
    CKPTREE_RETURN_IF_ERROR(
        CheckAgrees(options, engine.options(), /*rank=*/nullptr));
    auto impl = std::make_unique<Impl>(
        internal::StoreEngine::StoreOf(store.engine()), std::move(options),
        /*own_store=*/false);
    CKPTREE_RETURN_IF_ERROR(impl->SetUp());
    return CheckpointManager(std::move(impl));
  });
}

absl::StatusOr<CheckpointManager> CheckpointManager::Over(
    const RankGroup& group, ManagerOptions options) {
  return GuardedResult("Over", [&]() -> absl::StatusOr<CheckpointManager> {
    const auto rank = internal::RankGroupPeer::Shared(group);
    const internal::Engine& engine = internal::StoreEngine::Of(rank->store());
    CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
    if (options.store.read_only) return Over(rank->store(), std::move(options));
    auto ranks = std::make_unique<internal::ManagerRanks>(rank);
    internal::ManagerRanks* const others = ranks.get();
    std::unique_ptr<Impl> impl;
    internal::AskedSteps asked;
    // Whatever comes of it: the others wait for a word.
    const absl::Status own = internal::GuardedStatus("Over", [&] {
      CKPTREE_RETURN_IF_ERROR(Check(options));
      CKPTREE_RETURN_IF_ERROR(
          CheckAgrees(options, engine.options(), &rank->options()));
      asked = internal::AskedStepsOf(internal::DecisionOf(options),
                                     options.watch_sigterm);
      impl = std::make_unique<Impl>(
          internal::StoreEngine::StoreOf(
              internal::StoreEngine::Shared(rank->store())),
          std::move(options), /*own_store=*/false);
      impl->ranks = std::move(ranks);
      return impl->SetUp();
    });
    CKPTREE_RETURN_IF_ERROR(others->Meet(own, asked));
    return CheckpointManager(std::move(impl));
  });
}

absl::Status CheckpointManager::Impl::SetUp() {
  const std::string name = Branch();
  CKPTREE_ASSIGN_OR_RETURN(const PolicyInfo known, store.Policy(name));
  CKPTREE_ASSIGN_OR_RETURN(const internal::BranchId id,
                           engine().catalog().FindBranchId(name));
  found = {nullptr, known.text, known.from_program, id.created_ns};
  if (!sets_policy()) return absl::OkStatus();
  // It is set by the first save: who only restores changes nothing.
  if (const std::optional<Preservation> policy =
          internal::PreservationOf(options);
      policy.has_value()) {
    CKPTREE_RETURN_IF_ERROR(internal::CheckSettable(
        "preservation", *policy, engine().options().statistics));
  } else if (!known.from_program) {
    // What other options brought gives way to none; this one stays.
    CKPTREE_RETURN_IF_ERROR(engine().retention().CheckHealth(known.policy));
  }
  if (options.metadata.empty()) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const std::string metadata, store.Metadata(name));
  if (!metadata.empty()) return absl::OkStatus();
  return store.SetMetadata(options.metadata, name);
}

absl::Status CheckpointManager::Impl::Fork(std::int64_t step,
                                           std::string_view name) {
  // The policy that the branch takes along is this manager's own.
  if (!read_only()) CKPTREE_RETURN_IF_ERROR(TakeTurn());
  const std::string from = Branch();
  CKPTREE_ASSIGN_OR_RETURN(const PolicyInfo policy, store.Policy(from));
  CKPTREE_RETURN_IF_ERROR(policy.applicable);
  CKPTREE_RETURN_IF_ERROR(store.Fork(AtStep(step, from), name));
  if (!policy.text.empty()) {
    const absl::Status status =
        internal::StoreEngine::Of(store).settings().SetPolicy(
            policy.policy, name, policy.from_program);
    if (!status.ok()) {
      store.DropBranch(name).IgnoreError();  // As it was.
      return status;
    }
  }
  NoteFork(std::string(name), policy);
  return absl::OkStatus();
}

absl::StatusOr<PolicyTurns::Turn> CheckpointManager::Impl::SetPolicy(
    const std::string& name) {
  CKPTREE_ASSIGN_OR_RETURN(const PolicyInfo known, store.Policy(name));
  std::optional<Preservation> policy = internal::PreservationOf(options);
  bool from_program = true;
  if (policy.has_value()) {
    const std::string text = Text(*policy);
    // Set by hand, and wanted by the program as well: it stays by hand.
    if (known.text == text) from_program = known.from_program;
    if (!known.text.empty() && !known.from_program && known.text != text) {
      engine().logger().Log(
          LogSeverity::kWarning, "policy",
          absl::StrFormat("the policy '%s', set by hand, gives way to that of "
                          "the manager's options: '%s'",
                          known.text, text));
    }
  } else if (known.from_program && known.text != "all") {
    policy = PreserveAll{};
    engine().logger().Log(
        LogSeverity::kInfo, "policy",
        absl::StrFormat("the policy '%s' came with options that are not given "
                        "any more: every step stays from now on",
                        known.text));
  } else if (!known.applicable.ok()) {
    engine().logger().Log(LogSeverity::kWarning, "policy", known.applicable);
  }
  if (!policy.has_value()) {
    return PolicyTurns::Turn{this, known.text, known.from_program};
  }
  CKPTREE_RETURN_IF_ERROR(internal::StoreEngine::Of(store).settings().SetPolicy(
      *policy, name, from_program));
  return PolicyTurns::Turn{this, Text(*policy), from_program};
}

bool CheckpointManager::Impl::Gives(const PolicyTurns::Turn* brought,
                                    const PolicyInfo& known,
                                    std::int64_t created_ns) const {
  // A branch that was made since began without one.
  const PolicyTurns::Turn then =
      found.created_ns == created_ns ? found : PolicyTurns::Turn();
  return then.IsOf(known) || (brought != nullptr && brought->IsOf(known));
}

absl::Status CheckpointManager::Impl::TakeTurn() {
  const std::string name = Branch();
  PolicyTurns& turns = engine().policy_turns();
  const absl::MutexLock lock(&turns.mu);
  CKPTREE_RETURN_IF_ERROR(engine().CheckUsable());
  CKPTREE_ASSIGN_OR_RETURN(const internal::BranchId id,
                           engine().catalog().FindBranchId(name));
  const PolicyTurns::Turn* const turn = turns.Find(name, id.created_ns);
  if (turn != nullptr && turn->manager == this) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const PolicyInfo known, store.Policy(name));
  if (!Gives(turn, known, id.created_ns)) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(PolicyTurns::Turn taken, SetPolicy(name));
  taken.created_ns = id.created_ns;
  turns.last[name] = std::move(taken);
  return absl::OkStatus();
}

absl::StatusOr<Preservation> CheckpointManager::Impl::PolicyToJudgeBy() const {
  const std::string name = Branch();
  PolicyTurns& turns = engine().policy_turns();
  const absl::MutexLock lock(&turns.mu);
  CKPTREE_ASSIGN_OR_RETURN(PolicyInfo known, store.Policy(name));
  std::optional<Preservation> given = internal::PreservationOf(options);
  if (!given.has_value()) return std::move(known.policy);
  bool stands = false;  // What the branch has, also from the next save on.
  if (sets_policy()) {
    CKPTREE_ASSIGN_OR_RETURN(const internal::BranchId id,
                             engine().catalog().FindBranchId(name));
    const PolicyTurns::Turn* const turn = turns.Find(name, id.created_ns);
    stands = (turn != nullptr && turn->manager == this) ||
             !Gives(turn, known, id.created_ns);
  } else {
    // Who sets none sees that of its own program, but for one by hand since.
    stands = !known.text.empty() && !known.from_program && !found.IsOf(known);
  }
  return stands ? std::move(known.policy) : *std::move(given);
}

void CheckpointManager::Impl::NoteFork(const std::string& name,
                                       const PolicyInfo& policy) {
  PolicyTurns& turns = engine().policy_turns();
  const absl::MutexLock lock(&turns.mu);
  const auto id = engine().catalog().FindBranchId(name);
  if (!id.ok()) return;  // It was dropped since.
  turns.last[name] = {this, policy.text, policy.from_program, id->created_ns};
}

void CheckpointManager::Impl::LeaveTurns() {
  PolicyTurns& turns = engine().policy_turns();
  const absl::MutexLock lock(&turns.mu);
  for (auto& [name, turn] : turns.last) {
    if (turn.manager == this) turn.manager = nullptr;
  }
}

}  // namespace ckptree
