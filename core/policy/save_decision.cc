// SPDX-License-Identifier: Apache-2.0

#include "ckptree/save_decision.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/guarded_call.h"

namespace ckptree {
namespace {

constexpr int kMaxDepth = 32;

struct DecisionChecker {
  int depth = 0;

  absl::Status operator()(const AnySave& r) const {
    if (depth >= kMaxDepth) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the save decision has more than %d levels", kMaxDepth));
    }
    for (const SaveDecision& part : r.of) {
      CKPTREE_RETURN_IF_ERROR(
          std::visit(DecisionChecker{.depth = depth + 1}, part.rule()));
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const FixedInterval& r) const {
    if (r.interval != 0) return absl::OkStatus();
    return absl::InvalidArgumentError("a save every 0 steps: 1 or more");
  }
  absl::Status operator()(const SaveIf& r) const {
    return CheckFunction(r.function != nullptr);
  }
  absl::Status operator()(const CustomSave& r) const {
    return CheckFunction(r.function != nullptr);
  }
  template <typename R>
  absl::Status operator()(const R&) const {
    return absl::OkStatus();
  }

  static absl::Status CheckFunction(bool there) {
    if (there) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the save decision has a function that is not there");
  }
};

struct Decider {
  const SaveQuestion& question;

  absl::StatusOr<bool> operator()(const AnySave& r) const {
    for (const SaveDecision& part : r.of) {
      CKPTREE_ASSIGN_OR_RETURN(const bool save, std::visit(*this, part.rule()));
      if (save) return true;
    }
    return false;
  }
  absl::StatusOr<bool> operator()(const FixedInterval& r) const {
    // By -1 the lowest number cannot be divided.
    return r.interval == -1 || question.step.step % r.interval == 0;
  }
  absl::StatusOr<bool> operator()(const SpecificSteps& r) const {
    return std::find(r.steps.begin(), r.steps.end(), question.step.step) !=
           r.steps.end();
  }
  absl::StatusOr<bool> operator()(const ContinuousCheckpointing& r) const {
    if (question.saving_in_progress) return false;
    if (!question.latest.has_value() || !r.minimum.has_value()) return true;
    return question.step.time - question.latest->time >= *r.minimum;
  }
  absl::StatusOr<bool> operator()(const OnPreemption&) const {
    return question.preempted;
  }
  absl::StatusOr<bool> operator()(const InitialSave&) const {
    return !question.latest.has_value();
  }
  absl::StatusOr<bool> operator()(const SaveIf& r) const {
    bool save = false;
    CKPTREE_RETURN_IF_ERROR(internal::GuardedCall("should_save_fn", [&] {
      std::optional<std::int64_t> latest;
      if (question.latest.has_value()) latest = question.latest->step;
      save = r.function(question.step.step, latest);
    }));
    return save;
  }
  absl::StatusOr<bool> operator()(const CustomSave& r) const {
    bool save = false;
    CKPTREE_RETURN_IF_ERROR(internal::GuardedCall(
        "save_decision", [&] { save = r.function(question); }));
    return save;
  }
};

}  // namespace

SaveDecision::SaveDecision() : rule_(std::make_shared<const Rule>()) {}
SaveDecision::SaveDecision(AnySave rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(FixedInterval rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(SpecificSteps rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(ContinuousCheckpointing rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(OnPreemption rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(InitialSave rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(SaveIf rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
SaveDecision::SaveDecision(CustomSave rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}

absl::Status Check(const SaveDecision& decision) {
  return std::visit(DecisionChecker{}, decision.rule());
}

absl::StatusOr<bool> ShouldSave(const SaveDecision& decision,
                                const SaveQuestion& question) {
  CKPTREE_RETURN_IF_ERROR(Check(decision));
  return std::visit(Decider{question}, decision.rule());
}

}  // namespace ckptree
