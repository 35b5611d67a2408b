// SPDX-License-Identifier: Apache-2.0

#include "core/manage/manager_policies.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/policy/retention.h"
#include "schema/json_text.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree::internal {
namespace {

bool HasBest(const ManagerOptions& options) {
  return !options.best_metric.empty() || options.best_fn != nullptr;
}

BestN BestRule(const ManagerOptions& options) {
  BestN best;
  best.metric = options.best_metric;
  if (options.best_fn != nullptr) {
    if (best.metric.empty()) best.metric = "best_fn";
    best.computed = true;
    best.function = options.best_fn;
  }
  best.mode = options.best_mode;
  best.n = options.max_to_keep;
  best.keep_without_metrics = options.keep_checkpoints_without_metrics;
  return best;
}

absl::Status Contradiction(const char* a, const char* b) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s and %s contradict each other: leave out one", a, b));
}

}  // namespace

absl::Status CheckManagerOptions(const ManagerOptions& options) {
  if (options.save_interval_steps.has_value() &&
      *options.save_interval_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("save_interval_steps is %d: 1 or more, or nothing",
                        *options.save_interval_steps));
  }
  if (options.max_to_keep.has_value() && *options.max_to_keep < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("max_to_keep is %d: 0 or more, or nothing for all",
                        *options.max_to_keep));
  }
  if (options.keep_period.has_value() && *options.keep_period < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "keep_period is %d: 1 or more, or nothing", *options.keep_period));
  }
  if (const auto& interval = options.keep_time_interval;
      interval.has_value() &&
      (*interval < absl::Seconds(1) ||
       *interval != absl::Floor(*interval, absl::Seconds(1)))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("keep_time_interval is %s: whole seconds, 1 or more",
                        absl::FormatDuration(*interval)));
  }
  if (options.max_saves_in_flight < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "max_saves_in_flight is %d: 1 or more", options.max_saves_in_flight));
  }
  if (options.watch_sigterm && options.store.read_only) {
    return Contradiction("watch_sigterm", "read_only");
  }
  if (static_cast<std::int64_t>(options.metadata.size()) >
          schema::kMaxCustomMetadataBytes ||
      !schema::IsUtf8(options.metadata)) {
    return absl::InvalidArgumentError(
        "metadata are no UTF-8 text of at most 8 MiB");
  }
  if (!options.metadata.empty()) {
    if (absl::Status status = schema::CheckJson(options.metadata);
        !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("metadata are %s", status.message()));
    }
  }
  if (options.save_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("save_timeout is no time");
  }
  if (options.preservation.has_value()) {
    if (options.max_to_keep)
      return Contradiction("preservation", "max_to_keep");
    if (options.keep_period)
      return Contradiction("preservation", "keep_period");
    if (options.keep_time_interval) {
      return Contradiction("preservation", "keep_time_interval");
    }
    if (options.should_keep_fn) {
      return Contradiction("preservation", "should_keep_fn");
    }
  }
  if (HasBest(options) != options.best_mode.has_value()) {
    return absl::InvalidArgumentError(
        HasBest(options)
            ? "best_mode is missing: is the smallest or the largest value of "
              "the metric the best?"
            : "best_mode is set, and neither best_metric nor best_fn is");
  }
  if (!options.best_metric.empty() && options.best_fn) {
    return Contradiction("best_metric", "best_fn");
  }
  if (options.should_keep_fn && options.keep_period) {
    return Contradiction("should_keep_fn", "keep_period");
  }
  if (options.should_save_fn && options.save_decision) {
    return Contradiction("should_save_fn", "save_decision");
  }
  CKPTREE_RETURN_IF_ERROR(Check(DecisionOf(options)));
  if (const auto policy = PreservationOf(options)) {
    // A reader sets none.
    return options.store.read_only ? Check(*policy)
                                   : CheckSettable("preservation", *policy,
                                                   options.store.statistics);
  }
  return absl::OkStatus();
}

SaveDecision DecisionOf(const ManagerOptions& options) {
  if (options.save_decision.has_value()) return *options.save_decision;
  AnySave any;
  if (options.should_save_fn != nullptr) {
    any.of.push_back(SaveIf{options.should_save_fn});
    any.of.push_back(OnPreemption{});
    return any;
  }
  if (options.save_interval_steps.has_value()) {
    any.of.push_back(FixedInterval{*options.save_interval_steps});
  }
  any.of.push_back(SpecificSteps{options.save_on_steps});
  any.of.push_back(OnPreemption{});
  any.of.push_back(InitialSave{});
  return any;
}

std::optional<Preservation> PreservationOf(const ManagerOptions& options) {
  if (options.preservation.has_value()) return options.preservation;
  const bool any_given = options.max_to_keep || options.keep_period ||
                         options.keep_time_interval || options.should_keep_fn;
  if (!any_given) {
    // Which is best says nothing of how many stay, and another policy of the
    // store would not know it.
    if (HasBest(options)) return PreserveAll{};
    return std::nullopt;
  }
  AnyOf any;
  if (options.keep_period) any.of.push_back(EveryNSteps{*options.keep_period});
  if (options.keep_time_interval) {
    any.of.push_back(EveryNSeconds{*options.keep_time_interval});
  }
  if (options.should_keep_fn) {
    any.of.push_back(KeepIf{"should_keep_fn", options.should_keep_fn});
  }
  if (HasBest(options)) {
    any.of.push_back(BestRule(options));
  } else {
    any.of.push_back(LatestN{options.max_to_keep});
  }
  if (any.of.size() == 1) return any.of.front();
  return any;
}

std::optional<BestN> LimitOf(const ManagerOptions& options) {
  const std::optional<Preservation> policy = PreservationOf(options);
  if (!policy.has_value()) return std::nullopt;
  std::vector<Preservation> parts = {*policy};
  if (const auto* any = std::get_if<AnyOf>(&policy->rule())) parts = any->of;
  for (const Preservation& part : parts) {
    const auto* const best = std::get_if<BestN>(&part.rule());
    if (best == nullptr || best->computed) continue;
    if (best->n.value_or(0) > 0 && best->keep_without_metrics) return *best;
  }
  return std::nullopt;
}

std::optional<BestN> BestOf(const ManagerOptions& options,
                            const Preservation& policy) {
  if (HasBest(options)) return BestRule(options);
  if (const auto* best = std::get_if<BestN>(&policy.rule())) return *best;
  const std::vector<Preservation>* parts = nullptr;
  if (const auto* any = std::get_if<AnyOf>(&policy.rule())) parts = &any->of;
  if (const auto* all = std::get_if<AllOf>(&policy.rule())) parts = &all->of;
  if (parts == nullptr) return std::nullopt;
  for (const Preservation& part : *parts) {
    if (auto best = BestOf(options, part)) return best;
  }
  return std::nullopt;
}

}  // namespace ckptree::internal
