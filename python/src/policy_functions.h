// SPDX-License-Identifier: Apache-2.0

// Callables of Python as the functions of policies.

#ifndef CKPTREE_PYTHON_SRC_POLICY_FUNCTIONS_H_
#define CKPTREE_PYTHON_SRC_POLICY_FUNCTIONS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ckptree/preservation.h"

namespace ckptree::python {

// Called with a dict of the metrics, and the number of the step; returns a
// number or None.
MetricFn ToMetricFn(nanobind::callable function);
// Called with (step, seconds since 1970, metrics, healthy).
KeepFn ToKeepFn(nanobind::callable function);
// Called with a list of these tuples; returns as many answers.
PreserveFn ToPreserveFn(nanobind::callable function);
// Called with the numbers of this step and the latest one, or None.
std::function<bool(std::int64_t, std::optional<std::int64_t>)> ToSaveFn(
    nanobind::callable function);

// Steps as Python gives them: (step, seconds since 1970, metrics, healthy).
using StepTuple =
    std::tuple<std::int64_t, double, std::map<std::string, double>, bool>;

class PolicySteps {
 public:
  explicit PolicySteps(const std::vector<StepTuple>& steps);
  // `steps_` refers to `metrics_`.
  PolicySteps(const PolicySteps&) = delete;
  PolicySteps& operator=(const PolicySteps&) = delete;

  const std::vector<PolicyStep>& steps() const { return steps_; }

 private:
  std::vector<std::vector<std::pair<std::string, double>>> metrics_;
  std::vector<PolicyStep> steps_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_POLICY_FUNCTIONS_H_
