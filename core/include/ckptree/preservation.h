// SPDX-License-Identifier: Apache-2.0

// Preservation policies: which steps of a branch live. Pure functions over the
// steps there are; the rules and their results are those of Orbax's
// preservation_policy.py, where there is one of that name.
//
//   ckptree::Preservation policy =
//       ckptree::LatestN{3} | ckptree::EveryNSteps{1000} |
//       ckptree::BestN{.metric = "loss", .mode = ckptree::BestMode::kMin,
//                      .n = 2};
//   absl::Status status = store.SetPolicy(policy);
//
// What a policy does not keep is removed by the next save to its branch. It
// never removes the newest step, nor one that is pinned or tagged.

#ifndef CKPTREE_PRESERVATION_H_
#define CKPTREE_PRESERVATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/best_mode.h"
#include "ckptree/export.h"

namespace ckptree {

// A step as policies see it. The metrics are those of the caller's list: they
// must outlive this object.
struct CKPTREE_EXPORT PolicyStep {
  std::int64_t step = 0;
  // When its save began, as stored: the same after every restart.
  absl::Time time = absl::UnixEpoch();
  std::span<const std::pair<std::string, double>> metrics = {};
  // Neither NaN nor Inf in any array or metric. False also where that is not
  // known: see StepInfo::unknown_leaves.
  bool healthy = true;

  // Nothing where it has no such metric, or a NaN.
  std::optional<double> Metric(std::string_view name) const;
};

// Functions of a policy may throw and may return NaN. They run on the thread
// that commits saves, and on those that preview or apply a policy, possibly at
// once; they must not call back into the store.
using MetricFn = std::function<std::optional<double>(const PolicyStep&)>;
using KeepFn = std::function<bool(const PolicyStep&)>;
// One answer a step, in their order.
using PreserveFn =
    std::function<std::vector<bool>(std::span<const PolicyStep>)>;

struct PreserveAll;
struct LatestN;
struct EveryNSteps;
struct EveryNStepsClosest;
struct EveryNSeconds;
struct LatestDuration;
struct CustomSteps;
struct BestN;
struct Healthy;
struct Logarithmic;
struct Budget;
struct AnyOf;
struct AllOf;
struct KeepIf;
struct CustomPreservation;

// A policy: one of the rules below. A value: copies are cheap and share what
// they refer to. Const calls may be made from several threads at once.
class CKPTREE_EXPORT Preservation {
 public:
  using Rule = std::variant<PreserveAll, LatestN, EveryNSteps,
                            EveryNStepsClosest, EveryNSeconds, LatestDuration,
                            CustomSteps, BestN, Healthy, Logarithmic, Budget,
                            AnyOf, AllOf, KeepIf, CustomPreservation>;

  Preservation();  // PreserveAll.
  // Each converts. NOLINTBEGIN
  Preservation(PreserveAll rule);
  Preservation(LatestN rule);
  Preservation(EveryNSteps rule);
  Preservation(EveryNStepsClosest rule);
  Preservation(EveryNSeconds rule);
  Preservation(LatestDuration rule);
  Preservation(CustomSteps rule);
  Preservation(BestN rule);
  Preservation(Healthy rule);
  Preservation(Logarithmic rule);
  Preservation(Budget rule);
  Preservation(AnyOf rule);
  Preservation(AllOf rule);
  Preservation(KeepIf rule);
  Preservation(CustomPreservation rule);
  // NOLINTEND

  // REQUIRES: not moved from.
  const Rule& rule() const;

 private:
  std::shared_ptr<const Rule> rule_;  // Immutable: copies share it.
};

// ---- the rules, each with its text form (ParsePreservation) ----

// all: every step.
struct PreserveAll {};

// latest(3): the last `n` steps, by number. Nothing: all.
struct LatestN {
  std::optional<std::int64_t> n = {};
};

// every(1000), every(1000, spaced, last=5): steps that `interval` (not 0)
// divides. Not exact (spaced): the first, then each that is at least `interval`
// after the one kept before. Of them the last `max_to_keep`.
struct EveryNSteps {
  std::int64_t interval = 1;
  bool exact = true;
  std::optional<std::int64_t> max_to_keep = {};
};

// closest(1000): for each multiple of `interval` (not 0) the nearest of the
// steps that are nearer to it than to the others (a half: to the even
// multiple), ties to the later; and the last step. Of them the last
// `max_to_keep`.
struct EveryNStepsClosest {
  std::int64_t interval = 1;
  std::optional<std::int64_t> max_to_keep = {};
};

// every(2h): the first, then each whose time is at least `interval` after that
// of the one kept before.
struct EveryNSeconds {
  absl::Duration interval = absl::ZeroDuration();
};

// within(7d): the first whose age is at most `duration`, and all after it. A
// save takes ages at its own time.
struct LatestDuration {
  absl::Duration duration = absl::ZeroDuration();
};

// steps(0, 5000): just these.
struct CustomSteps {
  std::vector<std::int64_t> steps = {};
};

// best(loss, min, 2), best(loss, min, 2, unmeasured=drop): the `n` best by a
// metric, ties to the later; nothing: all. Steps without the metric, or with a
// NaN, are also kept, unless `n` is 0 or `keep_without_metrics` is false. Where
// there are no more than `n` steps, all of them are kept.
struct BestN {
  std::string metric = {};  // Or, where it is computed, the function's name.
  std::optional<BestMode> mode = {};  // Must be set: see BestMode.
  std::optional<std::int64_t> n = {};
  bool keep_without_metrics = true;
  bool computed = false;
  MetricFn function = {};
};

// healthy, healthy(2): the last `n` steps without NaN and Inf in an array or a
// metric, and without lost leaves. Without n: the last; in an AllOf every one.
// A step of which that is not known does not count, and a store that is opened
// for writing with StoreOptions::statistics off, so for such, refuses the rule.
struct Healthy {
  std::optional<std::int64_t> n = {};
};

// log(8): dense near now, sparse long ago: about `n` (not below 1) for each
// doubling of the distance to the last step. Steps at a distance d are held
// against a grid as wide as the largest power of two that is at most d / n, and
// the first in each of its cells is kept.
struct Logarithmic {
  std::int64_t n = 8;
};

// budget(20GB): the newest steps that fit, at least one: the bytes are those of
// all blocks that they need, the shared ones counted once.
struct Budget {
  std::uint64_t bytes = 0;
};

// A | B and A & B: what any, or each, of them keeps; at least one.
struct AnyOf {
  std::vector<Preservation> of = {};
};
struct AllOf {
  std::vector<Preservation> of = {};
};

// Functions of this program; what is stored is their name. Another program that
// saves to the branch without them removes nothing, and is told so
// (SaveHandle::PolicyProblem). A function that throws fails the application of
// the policy, not the save.
struct KeepIf {
  std::string name = "function";
  KeepFn function = {};
};
struct CustomPreservation {
  std::string name = "function";
  PreserveFn function = {};
};

inline const Preservation::Rule& Preservation::rule() const { return *rule_; }

// Keeps what one of both keeps; keeps what both of them keep.
CKPTREE_EXPORT Preservation operator|(Preservation a, Preservation b);
CKPTREE_EXPORT Preservation operator&(Preservation a, Preservation b);

// What a policy may ask in addition to the list of steps. A store fills it in;
// whoever asks a policy directly needs it for ages and budgets alone.
struct PreservationContext {
  absl::Time now = absl::InfinitePast();  // Past: the time of the last step.
  // How many of the oldest steps must go for the rest, the new one included, to
  // need at most `bytes`. Null: a Budget is kUnimplemented.
  std::function<absl::StatusOr<std::size_t>(std::uint64_t bytes)>
      oldest_beyond = {};
};

// kInvalidArgument, and what is wrong: a count that means nothing, a name that
// is not allowed, an AnyOf without rules.
CKPTREE_EXPORT absl::Status Check(const Preservation& policy);

// Which steps the policy keeps: one answer a step, in the order of `steps`,
// which is by number. Depends on nothing but its arguments and the policy's own
// functions: the same list gives the same answer. kInvalidArgument as Check();
// kInternal where a function threw or gave another number of answers,
// kFailedPrecondition where a function is not there.
CKPTREE_EXPORT absl::StatusOr<std::vector<bool>> Preserve(
    const Preservation& policy, std::span<const PolicyStep> steps,
    const PreservationContext& context = {});

// For each step, in the order of `steps`, the texts of the rules that keep it;
// none: it is not kept. Errors as Preserve().
CKPTREE_EXPORT absl::StatusOr<std::vector<std::vector<std::string>>> Explain(
    const Preservation& policy, std::span<const PolicyStep> steps,
    const PreservationContext& context = {});

// What the rule goes by; nothing where the step has none. kInternal where its
// function threw.
CKPTREE_EXPORT absl::StatusOr<std::optional<double>> MetricOf(
    const BestN& rule, const PolicyStep& step);

// "latest(3) | every(1000) | best(loss, min, 2) & healthy", as schema/FORMAT.md
// says. Functions are named and not in it.
CKPTREE_EXPORT std::string Text(const Preservation& policy);
// kInvalidArgument says where it stops making sense; a rule that is not known
// is named.
CKPTREE_EXPORT absl::StatusOr<Preservation> ParsePreservation(
    std::string_view text);
// The first function that it names and does not have; empty: none.
CKPTREE_EXPORT std::string MissingFunction(const Preservation& policy);

}  // namespace ckptree

#endif  // CKPTREE_PRESERVATION_H_
