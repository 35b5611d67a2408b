// SPDX-License-Identifier: Apache-2.0

// Policies and save decisions as values.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "ckptree/preservation.h"
#include "ckptree/save_decision.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/in_function.h"
#include "python/src/policy_functions.h"
#include "python/src/python_function.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Count = std::optional<std::int64_t>;

// REQUIRES: as Check() of C++, else ValueError.
Preservation Checked(Preservation policy) {
  Check(ckptree::Check(policy));
  return policy;
}

SaveDecision Checked(SaveDecision decision) {
  Check(ckptree::Check(decision));
  return decision;
}

nb::callable Callable(const nb::object& function) {
  return nb::cast<nb::callable>(function);
}

BestMode ModeOf(const std::string& mode) {
  if (mode == "min") return BestMode::kMin;
  if (mode == "max") return BestMode::kMax;
  throw nb::value_error("the mode is 'min' or 'max'");
}

Preservation BestOf(const std::string& metric, nb::object function,
                    const std::string& mode, Count n, bool keep_unmeasured) {
  BestN best;
  best.metric = metric;
  best.mode = ModeOf(mode);
  best.n = n;
  best.keep_without_metrics = keep_unmeasured;
  best.computed = !function.is_none();
  if (best.computed) best.function = ToMetricFn(Callable(function));
  return Checked(std::move(best));
}

// "20GB", as it is in the text of a policy.
Preservation BudgetOf(const std::string& size) {
  Preservation policy = Take(ParsePreservation("budget(" + size + ")"));
  if (!std::holds_alternative<Budget>(policy.rule())) {
    throw nb::value_error("a budget is a size like '20GB'");
  }
  return policy;
}

absl::Time TimeOf(std::optional<double> seconds) {
  if (!seconds.has_value()) return absl::InfinitePast();
  return absl::UnixEpoch() + absl::Seconds(*seconds);
}

void BindPolicies(nb::module_& m) {
  nb::class_<Preservation>(m, "Preservation", "Which steps of a branch live.")
      .def("text", [](const Preservation& self) { return ToText(Text(self)); })
      .def(
          "decide",
          [](const Preservation& self, const std::vector<StepTuple>& steps,
             std::optional<double> now) {
            const PolicySteps list(steps);
            return Take(Calling([&] {
              return Preserve(self, list.steps(), {.now = TimeOf(now)});
            }));
          },
          nb::arg("steps"), nb::arg("now").none())
      .def(
          "explain",
          [](const Preservation& self, const std::vector<StepTuple>& steps,
             std::optional<double> now) {
            const PolicySteps list(steps);
            return Take(Calling([&] {
              return Explain(self, list.steps(), {.now = TimeOf(now)});
            }));
          },
          nb::arg("steps"), nb::arg("now").none());
  m.def(
      "parse_policy",
      [](const std::string& text) { return Take(ParsePreservation(text)); },
      nb::arg("text"));
  m.def("keep_all", [] { return Preservation(); });
  m.def(
      "keep_latest", [](Count n) { return Checked(LatestN{n}); },
      nb::arg("n").none());
  m.def(
      "keep_every_n",
      [](std::int64_t interval, bool spaced, Count last) {
        return Checked(EveryNSteps{interval, !spaced, last});
      },
      nb::arg("interval"), nb::arg("spaced"), nb::arg("last").none());
  m.def(
      "keep_closest",
      [](std::int64_t interval, Count last) {
        return Checked(EveryNStepsClosest{interval, last});
      },
      nb::arg("interval"), nb::arg("last").none());
  m.def(
      "keep_every",
      [](std::int64_t microseconds) {
        return Checked(EveryNSeconds{absl::Microseconds(microseconds)});
      },
      nb::arg("microseconds"));
  m.def(
      "keep_within",
      [](std::int64_t microseconds) {
        return Checked(LatestDuration{absl::Microseconds(microseconds)});
      },
      nb::arg("microseconds"));
  m.def(
      "keep_steps",
      [](std::vector<std::int64_t> steps) {
        return Checked(CustomSteps{std::move(steps)});
      },
      nb::arg("steps"));
  m.def("keep_best", &BestOf, nb::arg("metric"), nb::arg("function").none(),
        nb::arg("mode"), nb::arg("n").none(), nb::arg("keep_unmeasured"));
  m.def(
      "keep_healthy", [](Count n) { return Checked(Healthy{n}); },
      nb::arg("n").none());
  m.def(
      "keep_logarithmic",
      [](std::int64_t n) { return Checked(Logarithmic{n}); }, nb::arg("n"));
  m.def(
      "keep_budget", [](std::uint64_t bytes) { return Checked(Budget{bytes}); },
      nb::arg("bytes"));
  m.def("keep_budget_of", &BudgetOf, nb::arg("size"));
  m.def(
      "keep_any",
      [](std::vector<Preservation> of) {
        return Checked(AnyOf{std::move(of)});
      },
      nb::arg("of"));
  m.def(
      "keep_each",
      [](std::vector<Preservation> of) {
        return Checked(AllOf{std::move(of)});
      },
      nb::arg("of"));
  m.def(
      "keep_if",
      [](const std::string& name, nb::object function) {
        return Checked(KeepIf{name, ToKeepFn(Callable(function))});
      },
      nb::arg("name"), nb::arg("function"));
  m.def(
      "keep_custom",
      [](const std::string& name, nb::object function) {
        return Checked(
            CustomPreservation{name, ToPreserveFn(Callable(function))});
      },
      nb::arg("name"), nb::arg("function"));
}

void BindDecisions(nb::module_& m) {
  nb::class_<SaveDecision>(m, "SaveDecision", "Which steps are saved.")
      .def(
          "decide",
          [](const SaveDecision& self, const StepTuple& step,
             const std::optional<StepTuple>& latest, bool saving_in_progress,
             bool preempted) {
            const PolicySteps now({step});
            const PolicySteps before(latest.has_value()
                                         ? std::vector<StepTuple>{*latest}
                                         : std::vector<StepTuple>{});
            SaveQuestion question;
            question.step = now.steps().front();
            if (latest.has_value()) question.latest = before.steps().front();
            question.saving_in_progress = saving_in_progress;
            question.preempted = preempted;
            return Take(Calling([&] { return ShouldSave(self, question); }));
          },
          nb::arg("step"), nb::arg("latest").none(),
          nb::arg("saving_in_progress"), nb::arg("preempted"));
  m.def(
      "save_every",
      [](std::int64_t interval) {
        return Checked(SaveDecision(FixedInterval{interval}));
      },
      nb::arg("interval"));
  m.def(
      "save_at",
      [](std::vector<std::int64_t> steps) {
        return Checked(SaveDecision(SpecificSteps{std::move(steps)}));
      },
      nb::arg("steps"));
  m.def(
      "save_continuously",
      [](std::optional<std::int64_t> microseconds) {
        ContinuousCheckpointing rule;
        if (microseconds.has_value()) {
          rule.minimum = absl::Microseconds(*microseconds);
        }
        return Checked(SaveDecision(rule));
      },
      nb::arg("microseconds").none());
  m.def("save_on_preemption", [] { return SaveDecision(OnPreemption{}); });
  m.def("save_initially", [] { return SaveDecision(InitialSave{}); });
  m.def(
      "save_any",
      [](std::vector<SaveDecision> of) {
        return Checked(SaveDecision(AnySave{std::move(of)}));
      },
      nb::arg("of"));
  m.def(
      "save_if",
      [](nb::object function) {
        return Checked(SaveDecision(SaveIf{ToSaveFn(Callable(function))}));
      },
      nb::arg("function"));
}

}  // namespace

void BindPolicy(nb::module_& m) {
  m.def("release_functions", &PythonFunction::ReleaseAll);
  m.def("in_function", &IsInFunction);
  BindPolicies(m);
  BindDecisions(m);
}

}  // namespace ckptree::python
