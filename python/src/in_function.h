// SPDX-License-Identifier: Apache-2.0

// Whether the engine waits for a function of Python on this thread.

#ifndef CKPTREE_PYTHON_SRC_IN_FUNCTION_H_
#define CKPTREE_PYTHON_SRC_IN_FUNCTION_H_

namespace ckptree::python {

// Whether this thread is in a function of Python that the engine called. What
// it asks for runs on this thread: the engine knows by the thread that it must
// refuse what would wait for that function.
bool IsInFunction();

// Around such a call.
class InFunction {
 public:
  InFunction();
  ~InFunction();
  InFunction(const InFunction&) = delete;
  InFunction& operator=(const InFunction&) = delete;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_IN_FUNCTION_H_
