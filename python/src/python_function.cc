// SPDX-License-Identifier: Apache-2.0

#include "python/src/python_function.h"

#include <pthread.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/src/in_function.h"
#include "python/src/interpreter_lock.h"
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
  if (function == nullptr || !nb::is_alive()) return;
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

// One reference, which is in the list of all as long as it lives. Thread-safe.
class PythonFunction::Held {
 public:
  explicit Held(nb::callable function) : function_(function.release().ptr()) {
    const std::lock_guard<std::mutex> lock(All().mutex);
    All().held.insert(this);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    PyObject* function = nullptr;
    {
      const std::lock_guard<std::mutex> lock(All().mutex);
      All().held.erase(this);
      function = std::exchange(function_, nullptr);
    }
    Drop(function);
  }

  // Nothing after ReleaseAll(). REQUIRES: the GIL, without which none is
  // released.
  nb::object Get() const {
    const std::lock_guard<std::mutex> lock(All().mutex);
    return nb::borrow(function_);
  }

  // REQUIRES: the GIL.
  static void ReleaseAll() {
    std::vector<nb::object> released;  // Destroyed without the lock.
    const std::lock_guard<std::mutex> lock(All().mutex);
    for (Held* const one : All().held) {
      released.push_back(nb::steal(std::exchange(one->function_, nullptr)));
    }
  }

 private:
  // Nobody has the lock while the process forks: the child would wait for it.
  struct List {
    List() {
      pthread_atfork(
          +[] { All().mutex.lock(); }, +[] { All().mutex.unlock(); },
          +[] { All().mutex.unlock(); });
    }
    std::mutex mutex;
    std::unordered_set<Held*> held;
  };
  // Never destroyed, as the queue above.
  static List& All() {
    static auto* const list = new List;
    return *list;
  }

  PyObject* function_;
};

PythonFunction::PythonFunction(nb::callable function)
    : function_(std::make_shared<Held>(std::move(function))) {}

void PythonFunction::ReleaseAll() { Held::ReleaseAll(); }

void PythonFunction::Call(
    const std::function<nb::tuple()>& arguments,
    const std::function<void(nb::handle result)>& use) const {
  if (!nb::is_alive()) throw std::runtime_error("the interpreter has ended");
  const Locked locked;
  const nb::object function = function_->Get();
  if (!function.is_valid()) throw std::runtime_error("the interpreter ends");
  const InFunction here;
  try {
    const nb::tuple positional = arguments();
    const nb::object result =
        nb::steal(PyObject_Call(function.ptr(), positional.ptr(), nullptr));
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
