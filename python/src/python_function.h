// SPDX-License-Identifier: Apache-2.0

// Functions of Python that the engine calls, on whatever thread.

#ifndef CKPTREE_PYTHON_SRC_PYTHON_FUNCTION_H_
#define CKPTREE_PYTHON_SRC_PYTHON_FUNCTION_H_

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "python/src/waiting.h"

namespace ckptree::python {

// A reference to a callable that the engine may copy and drop without the GIL.
class PythonFunction {
 public:
  explicit PythonFunction(nanobind::callable function);

  // Takes the GIL, calls the function with what `arguments` makes, and gives
  // the result to `use`. What is raised is thrown as std::runtime_error, which
  // the engine makes a status of; see Calling().
  void Call(const std::function<nanobind::tuple()>& arguments,
            const std::function<void(nanobind::handle result)>& use) const;

  // At the exit of the interpreter: lets go of all functions there are; a call
  // throws from then on. A function leads to all that its module names, and so
  // does a policy that holds it to itself, which Python's collector does not
  // see.
  static void ReleaseAll();

 private:
  class Held;
  std::shared_ptr<Held> function_;
};

// While it lives, what functions raise on this thread is kept.
//
// Confined to one thread, which has the GIL when it is made and destroyed.
class RaisedHere {
 public:
  RaisedHere();
  RaisedHere(const RaisedHere&) = delete;
  RaisedHere& operator=(const RaisedHere&) = delete;
  ~RaisedHere();

  // Throws it, where there is something.
  void Throw();

 private:
  friend class PythonFunction;
  RaisedHere* const outer_;
  std::optional<nanobind::python_error> error_;
};

// Calls the engine without the GIL. Where it fails because a function raised
// on this thread, that exception is thrown as it was.
template <typename Work>
auto Calling(Work&& work) {
  RaisedHere raised;
  auto result = WithoutGil(std::forward<Work>(work));
  if (!result.ok()) raised.Throw();
  return result;
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_PYTHON_FUNCTION_H_
