// SPDX-License-Identifier: Apache-2.0

#include "python/src/python_function.h"

#include <stdexcept>
#include <string>

#include "python/src/release_queue.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

thread_local RaisedHere* innermost = nullptr;

// Of functions that were dropped where there was no GIL. Never destroyed: the
// engine's threads may outlive the statics.
ReleaseQueue& DroppedFunctions() {
  static const auto* const queue =
      new std::shared_ptr<ReleaseQueue>(std::make_shared<ReleaseQueue>());
  return **queue;
}

void Drop(PyObject* function) {
  if (!nb::is_alive()) return;
  if (PyGILState_Check() != 0) {
    Py_DECREF(function);
  } else {
    // Whoever has the GIL may be waiting for this thread.
    DroppedFunctions().Add(function);
  }
}

// "ValueError: what it says"
std::string TextOf(const nb::python_error& error) {
  std::string text = nb::str(error.type().attr("__name__")).c_str();
  PyObject* message = PyObject_Str(error.value().ptr());
  if (message == nullptr) {
    PyErr_Clear();
    return text;
  }
  const nb::str owned = nb::steal<nb::str>(message);
  if (nb::len(owned) > 0) text += std::string(": ") + owned.c_str();
  return text;
}

}  // namespace

PythonFunction::PythonFunction(nb::callable function)
    : function_(function.release().ptr(), &Drop) {}

void PythonFunction::Call(
    const std::function<nb::tuple()>& arguments,
    const std::function<void(nb::handle result)>& use) const {
  if (!nb::is_alive()) throw std::runtime_error("the interpreter has ended");
  const nb::gil_scoped_acquire acquire;
  try {
    const nb::tuple positional = arguments();
    const nb::object result =
        nb::steal(PyObject_Call(function_.get(), positional.ptr(), nullptr));
    if (!result.is_valid()) throw nb::python_error();
    use(result);
  } catch (nb::python_error& error) {
    const std::string text = TextOf(error);
    if (innermost != nullptr) innermost->error_.emplace(std::move(error));
    throw std::runtime_error(text);
  }
}

RaisedHere::RaisedHere() : outer_(innermost) { innermost = this; }

RaisedHere::~RaisedHere() { innermost = outer_; }

void RaisedHere::Throw() {
  if (!error_.has_value()) return;
  nb::python_error error(std::move(*error_));
  error_.reset();
  throw error;
}

}  // namespace ckptree::python
