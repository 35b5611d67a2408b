// SPDX-License-Identifier: Apache-2.0

#include "ckptree/preservation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/policy/preservation_text.h"
#include "core/process/guarded_call.h"
#include "schema/limits.h"

namespace ckptree {
namespace {

using Mask = std::vector<bool>;
using Steps = std::span<const PolicyStep>;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError("the policy: " + what);
}

absl::Status CheckCount(std::string_view rule, std::optional<std::int64_t> n) {
  if (!n.has_value() || *n >= 0) return absl::OkStatus();
  return Wrong(absl::StrFormat("%s counts %d steps: 0 or more", rule, *n));
}

absl::Status CheckInterval(std::int64_t interval) {
  if (interval != 0 && interval != std::numeric_limits<std::int64_t>::min()) {
    return absl::OkStatus();
  }
  return Wrong(absl::StrFormat("every %d steps: 1 or more", interval));
}

absl::Status CheckName(std::string_view what, std::string_view name) {
  if (!name.empty() &&
      static_cast<std::int64_t>(name.size()) <= schema::kMaxNameBytes) {
    return absl::OkStatus();
  }
  return Wrong(
      absl::StrFormat("the name of a %s has 1 to %d bytes, '%s' has %d", what,
                      schema::kMaxNameBytes, name, name.size()));
}

struct PreservationChecker {
  int depth = 0;

  absl::Status operator()(const PreserveAll&) const { return {}; }
  absl::Status operator()(const LatestN& r) const {
    return CheckCount("latest", r.n);
  }
  absl::Status operator()(const EveryNSteps& r) const {
    CKPTREE_RETURN_IF_ERROR(CheckInterval(r.interval));
    return CheckCount("every", r.max_to_keep);
  }
  absl::Status operator()(const EveryNStepsClosest& r) const {
    CKPTREE_RETURN_IF_ERROR(CheckInterval(r.interval));
    return CheckCount("closest", r.max_to_keep);
  }
  // A negative one keeps all, as with Orbax.
  absl::Status operator()(const EveryNSeconds& r) const {
    if (r.interval < absl::InfiniteDuration()) return {};
    return Wrong("every time that never ends");
  }
  absl::Status operator()(const LatestDuration& r) const {
    if (r.duration >= absl::ZeroDuration()) return {};
    return Wrong("within a negative time");
  }
  absl::Status operator()(const CustomSteps&) const { return {}; }
  absl::Status operator()(const BestN& r) const {
    CKPTREE_RETURN_IF_ERROR(CheckName("metric", r.metric));
    if (r.function != nullptr && !r.computed) {
      return Wrong(absl::StrFormat(
          "best has a function for '%s' and is not `computed`", r.metric));
    }
    if (!r.mode.has_value()) {
      return Wrong(absl::StrFormat(
          "best('%s') says not whether the smallest or the largest value is "
          "best: set its mode",
          r.metric));
    }
    if (*r.mode != BestMode::kMin && *r.mode != BestMode::kMax) {
      return Wrong(
          absl::StrFormat("best('%s') has a mode of number %d, which "
                          "is neither kMin nor kMax",
                          r.metric, static_cast<int>(*r.mode)));
    }
    return CheckCount("best", r.n);
  }
  absl::Status operator()(const Healthy& r) const {
    return CheckCount("healthy", r.n);
  }
  absl::Status operator()(const Logarithmic& r) const {
    if (r.n >= 1) return {};
    return Wrong(absl::StrFormat("log(%d): 1 or more", r.n));
  }
  absl::Status operator()(const Budget& r) const {
    if (r.bytes > 0) return {};
    return Wrong("a budget of no bytes");
  }
  absl::Status operator()(const AnyOf& r) const { return CheckAll(r.of); }
  absl::Status operator()(const AllOf& r) const { return CheckAll(r.of); }
  absl::Status operator()(const KeepIf& r) const {
    return CheckName("function", r.name);
  }
  absl::Status operator()(const CustomPreservation& r) const {
    return CheckName("function", r.name);
  }

  absl::Status CheckAll(const std::vector<Preservation>& of) const {
    if (of.empty()) return Wrong("any or all of no rules: name one at least");
    if (depth >= internal::kMaxPolicyDepth) {
      return Wrong(
          absl::StrFormat("more than %d levels", internal::kMaxPolicyDepth));
    }
    for (const Preservation& policy : of) {
      CKPTREE_RETURN_IF_ERROR(
          std::visit(PreservationChecker{.depth = depth + 1}, policy.rule()));
    }
    return absl::OkStatus();
  }
};

absl::Status Missing(std::string_view name) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "the policy asks function '%s', which this program does not have", name));
}

// Of the kept ones the last `n` stay.
void LimitTo(std::optional<std::int64_t> n, Mask* mask) {
  if (!n.has_value()) return;
  std::int64_t left = *n;
  for (std::size_t i = mask->size(); i-- > 0;) {
    if ((*mask)[i] && left-- <= 0) (*mask)[i] = false;
  }
}

// Which multiple of `n` > 0 is nearest, and how far; a half goes to the even
// one, as Python's round() has it.
struct NearestMultiple {
  std::int64_t quotient = 0;
  std::int64_t distance = 0;

  NearestMultiple(std::int64_t step, std::int64_t n) {
    const std::int64_t rest = step % n;
    quotient = step / n - (rest < 0 ? 1 : 0);
    const std::int64_t left = rest < 0 ? rest + n : rest;
    const std::int64_t missing = n - left;
    distance = std::min(left, missing);
    if (left == missing ? quotient % 2 != 0 : missing < left) ++quotient;
  }
};

class Evaluator {
 public:
  Evaluator(Steps steps, const PreservationContext& context)
      : steps_(steps), context_(context) {}

  absl::StatusOr<Mask> Of(const Preservation& policy, bool in_all_of) const {
    return std::visit(
        [&](const auto& rule) -> absl::StatusOr<Mask> {
          if constexpr (std::same_as<std::remove_cvref_t<decltype(rule)>,
                                     Healthy>) {
            return KeepHealthy(rule, in_all_of);
          } else {
            return Keep(rule);
          }
        },
        policy.rule());
  }

  // The rules below `policy` that keep a step, by their texts.
  absl::Status AddReasons(
      const Preservation& policy,
      std::vector<std::vector<std::string>>* reasons) const {
    if (const auto* any = std::get_if<AnyOf>(&policy.rule())) {
      for (const Preservation& part : any->of) {
        CKPTREE_RETURN_IF_ERROR(AddReasons(part, reasons));
      }
      return absl::OkStatus();
    }
    CKPTREE_ASSIGN_OR_RETURN(const Mask mask, Of(policy, false));
    const std::string text = Text(policy);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) (*reasons)[i].push_back(text);
    }
    return absl::OkStatus();
  }

 private:
  std::size_t size() const { return steps_.size(); }

  absl::StatusOr<Mask> Keep(const PreserveAll&) const {
    return Mask(size(), true);
  }

  absl::StatusOr<Mask> Keep(const LatestN& r) const {
    Mask mask(size(), true);
    LimitTo(r.n, &mask);
    return mask;
  }

  absl::StatusOr<Mask> Keep(const EveryNSteps& r) const {
    Mask mask(size(), false);
    const std::int64_t interval = std::abs(r.interval);
    std::optional<std::int64_t> last;
    for (std::size_t i = 0; i < size(); ++i) {
      const std::int64_t step = steps_[i].step;
      mask[i] = r.exact ? step % interval == 0
                        : !last.has_value() || step - *last >= r.interval;
      if (mask[i]) last = step;
    }
    LimitTo(r.max_to_keep, &mask);
    return mask;
  }

  absl::StatusOr<Mask> Keep(const EveryNStepsClosest& r) const {
    struct Nearest {
      std::int64_t distance = 0;
      std::size_t at = 0;
    };
    std::vector<std::pair<std::int64_t, Nearest>> cells;
    cells.reserve(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const NearestMultiple cell(steps_[i].step, std::abs(r.interval));
      cells.push_back({cell.quotient, {cell.distance, i}});
    }
    std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second.distance, b.second.at) <
             std::tie(b.first, b.second.distance, a.second.at);
    });
    Mask mask(size(), false);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == 0 || cells[i].first != cells[i - 1].first) {
        mask[cells[i].second.at] = true;
      }
    }
    if (!mask.empty()) mask.back() = true;
    LimitTo(r.max_to_keep, &mask);
    return mask;
  }

  absl::StatusOr<Mask> Keep(const EveryNSeconds& r) const {
    Mask mask(size(), false);
    std::optional<absl::Time> last;
    for (std::size_t i = 0; i < size(); ++i) {
      const absl::Time time = steps_[i].time;
      mask[i] = !last.has_value() || time - *last >= r.interval;
      if (mask[i]) last = time;
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const LatestDuration& r) const {
    Mask mask(size(), false);
    if (steps_.empty()) return mask;
    const absl::Time now = context_.now == absl::InfinitePast()
                               ? steps_.back().time
                               : context_.now;
    bool found = false;
    for (std::size_t i = 0; i < size(); ++i) {
      found = found || now - steps_[i].time <= r.duration;
      mask[i] = found;
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const CustomSteps& r) const {
    const std::set<std::int64_t> wanted(r.steps.begin(), r.steps.end());
    Mask mask(size(), false);
    for (std::size_t i = 0; i < size(); ++i) {
      mask[i] = wanted.contains(steps_[i].step);
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const BestN& r) const {
    const auto n = static_cast<std::size_t>(r.n.value_or(0));
    if (!r.n.has_value() || size() <= n) return Mask(size(), true);
    if (n == 0) return Mask(size(), false);
    Mask mask(size(), false);
    std::vector<std::pair<double, std::size_t>> ranked;
    ranked.reserve(size());
    for (std::size_t i = 0; i < size(); ++i) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<double> value,
                               MetricOf(r, steps_[i]));
      if (value.has_value()) {
        ranked.emplace_back(*r.mode == BestMode::kMax ? *value : -*value, i);
      } else {
        mask[i] = r.keep_without_metrics;
      }
    }
    if (ranked.size() > n) {
      const auto cut = ranked.begin() + static_cast<std::ptrdiff_t>(n);
      std::nth_element(ranked.begin(), cut, ranked.end(), std::greater<>());
      ranked.erase(cut, ranked.end());
    }
    for (const auto& [value, i] : ranked) mask[i] = true;
    return mask;
  }

  absl::StatusOr<Mask> KeepHealthy(const Healthy& r, bool in_all_of) const {
    Mask mask(size(), false);
    for (std::size_t i = 0; i < size(); ++i) mask[i] = steps_[i].healthy;
    if (r.n.has_value() || !in_all_of) LimitTo(r.n.value_or(1), &mask);
    return mask;
  }

  absl::StatusOr<Mask> Keep(const Logarithmic& r) const {
    Mask mask(size(), false);
    if (steps_.empty()) return mask;
    const std::int64_t newest = steps_.back().step;
    std::optional<std::int64_t> last;
    for (std::size_t i = 0; i < size(); ++i) {
      const std::int64_t step = steps_[i].step;
      // Unsigned: the distance of any two steps fits.
      const std::uint64_t distance = newest < step
                                         ? 0
                                         : static_cast<std::uint64_t>(newest) -
                                               static_cast<std::uint64_t>(step);
      const std::uint64_t ratio = distance / static_cast<std::uint64_t>(r.n);
      const int shift =
          ratio == 0 ? 0 : static_cast<int>(std::bit_width(ratio)) - 1;
      mask[i] = !last.has_value() || (*last >> shift) != (step >> shift);
      if (mask[i]) last = step;
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const Budget& r) const {
    if (context_.oldest_beyond == nullptr) {
      return absl::UnimplementedError(
          "a budget needs a store: what steps cost is not known here");
    }
    Mask mask(size(), true);
    if (mask.empty()) return mask;
    CKPTREE_ASSIGN_OR_RETURN(const std::size_t beyond,
                             context_.oldest_beyond(r.bytes));
    std::fill_n(mask.begin(), std::min(beyond, size() - 1), false);
    return mask;
  }

  absl::StatusOr<Mask> Keep(const AnyOf& r) const {
    Mask mask(size(), false);
    for (const Preservation& part : r.of) {
      CKPTREE_ASSIGN_OR_RETURN(const Mask kept, Of(part, false));
      for (std::size_t i = 0; i < size(); ++i) mask[i] = mask[i] || kept[i];
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const AllOf& r) const {
    Mask mask(size(), true);
    for (const Preservation& part : r.of) {
      CKPTREE_ASSIGN_OR_RETURN(const Mask kept, Of(part, true));
      for (std::size_t i = 0; i < size(); ++i) mask[i] = mask[i] && kept[i];
    }
    return mask;
  }

  absl::StatusOr<Mask> Keep(const KeepIf& r) const {
    if (r.function == nullptr) return Missing(r.name);
    Mask mask(size(), false);
    CKPTREE_RETURN_IF_ERROR(internal::GuardedCall(r.name, [&] {
      for (std::size_t i = 0; i < size(); ++i) {
        mask[i] = r.function(steps_[i]);
      }
    }));
    return mask;
  }

  absl::StatusOr<Mask> Keep(const CustomPreservation& r) const {
    if (r.function == nullptr) return Missing(r.name);
    Mask mask;
    CKPTREE_RETURN_IF_ERROR(
        internal::GuardedCall(r.name, [&] { mask = r.function(steps_); }));
    if (mask.size() != size()) {
      return absl::InternalError(
          absl::StrFormat("function '%s' gave %d answers for %d steps", r.name,
                          mask.size(), size()));
    }
    return mask;
  }

  const Steps steps_;
  const PreservationContext& context_;
};

}  // namespace

std::optional<double> PolicyStep::Metric(std::string_view name) const {
  for (const auto& [metric, value] : metrics) {
    if (metric == name && !std::isnan(value)) return value;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<double>> MetricOf(const BestN& r,
                                               const PolicyStep& step) {
  if (!r.computed) return step.Metric(r.metric);
  if (r.function == nullptr) return Missing(r.metric);
  std::optional<double> value;
  CKPTREE_RETURN_IF_ERROR(
      internal::GuardedCall(r.metric, [&] { value = r.function(step); }));
  if (value.has_value() && std::isnan(*value)) value.reset();
  return value;
}

absl::Status Check(const Preservation& policy) {
  CKPTREE_RETURN_IF_ERROR(std::visit(PreservationChecker{}, policy.rule()));
  const std::size_t length = Text(policy).size();
  if (static_cast<std::int64_t>(length) > schema::kMaxPolicyBytes) {
    return Wrong(
        absl::StrFormat("as text it has %d bytes, at most %d are "
                        "possible; name fewer steps",
                        length, schema::kMaxPolicyBytes));
  }
  return absl::OkStatus();
}

// What must hold before a policy decides.
static absl::Status CheckDecides(const Preservation& policy) {
  CKPTREE_RETURN_IF_ERROR(std::visit(PreservationChecker{}, policy.rule()));
  const std::string name = MissingFunction(policy);
  return name.empty() ? absl::OkStatus() : Missing(name);
}

absl::StatusOr<std::vector<bool>> Preserve(const Preservation& policy,
                                           std::span<const PolicyStep> steps,
                                           const PreservationContext& context) {
  CKPTREE_RETURN_IF_ERROR(CheckDecides(policy));
  return Evaluator(steps, context).Of(policy, false);
}

absl::StatusOr<std::vector<std::vector<std::string>>> Explain(
    const Preservation& policy, std::span<const PolicyStep> steps,
    const PreservationContext& context) {
  CKPTREE_RETURN_IF_ERROR(CheckDecides(policy));
  std::vector<std::vector<std::string>> reasons(steps.size());
  CKPTREE_RETURN_IF_ERROR(
      Evaluator(steps, context).AddReasons(policy, &reasons));
  return reasons;
}

}  // namespace ckptree
