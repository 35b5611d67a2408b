// SPDX-License-Identifier: Apache-2.0

#include "python/src/policy_functions.h"

#include <string>
#include <utility>

#include "python/src/errors.h"
#include "python/src/python_function.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

nb::dict MetricsOf(const PolicyStep& step) {
  nb::dict metrics;
  for (const auto& [name, value] : step.metrics) metrics[ToText(name)] = value;
  return metrics;
}

nb::tuple TupleOf(const PolicyStep& step) {
  return nb::make_tuple(step.step,
                        absl::ToDoubleSeconds(step.time - absl::UnixEpoch()),
                        MetricsOf(step), step.healthy);
}

// A bool, of Python or of an array of one, or a number of steps or the like.
// Nothing else: a function that lacks its return would say that steps go.
bool Truth(nb::handle value) {
  if (PyIndex_Check(value.ptr()) == 0 && !nb::hasattr(value, "dtype")) {
    const std::string text =
        "the function of a policy gave " +
        std::string(nb::repr(value).c_str()).substr(0, 80) +
        (value.is_none() ? ", as one without a return does," : "") +
        " where True or False is asked for";
    PyErr_SetString(PyExc_TypeError, text.c_str());
    throw nb::python_error();
  }
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

}  // namespace

MetricFn ToMetricFn(nb::callable function) {
  return [f = PythonFunction(std::move(function))](const PolicyStep& step) {
    std::optional<double> metric;
    f.Call([&] { return nb::make_tuple(MetricsOf(step), step.step); },
           [&](nb::handle result) {
             if (result.is_none()) return;
             metric = PyFloat_AsDouble(result.ptr());
             if (PyErr_Occurred() != nullptr) throw nb::python_error();
           });
    return metric;
  };
}

KeepFn ToKeepFn(nb::callable function) {
  return [f = PythonFunction(std::move(function))](const PolicyStep& step) {
    bool keep = true;
    f.Call([&] { return TupleOf(step); },
           [&](nb::handle result) { keep = Truth(result); });
    return keep;
  };
}

PreserveFn ToPreserveFn(nb::callable function) {
  return [f = PythonFunction(std::move(function))](
             std::span<const PolicyStep> steps) {
    std::vector<bool> keep;
    f.Call(
        [&] {
          nb::list list;
          for (const PolicyStep& step : steps) list.append(TupleOf(step));
          return nb::make_tuple(list);
        },
        [&](nb::handle result) {
          const nb::object answers = nb::steal(PyObject_GetIter(result.ptr()));
          if (!answers.is_valid()) throw nb::python_error();
          while (PyObject* next = PyIter_Next(answers.ptr())) {
            const nb::object answer = nb::steal(next);
            keep.push_back(Truth(answer));
          }
          if (PyErr_Occurred() != nullptr) throw nb::python_error();
        });
    return keep;
  };
}

std::function<bool(std::int64_t, std::optional<std::int64_t>)> ToSaveFn(
    nb::callable function) {
  return [f = PythonFunction(std::move(function))](
             std::int64_t step, std::optional<std::int64_t> latest) {
    bool save = false;
    f.Call(
        [&] {
          const nb::object before =
              latest.has_value() ? nb::object(nb::int_(*latest)) : nb::none();
          return nb::make_tuple(step, before);
        },
        [&](nb::handle result) { save = Truth(result); });
    return save;
  };
}

PolicySteps::PolicySteps(const std::vector<StepTuple>& steps) {
  metrics_.reserve(steps.size());
  for (const auto& [step, seconds, metrics, healthy] : steps) {
    metrics_.emplace_back(metrics.begin(), metrics.end());
    PolicyStep& made = steps_.emplace_back();
    made.step = step;
    made.time = absl::UnixEpoch() + absl::Seconds(seconds);
    made.metrics = metrics_.back();
    made.healthy = healthy;
  }
}

}  // namespace ckptree::python
