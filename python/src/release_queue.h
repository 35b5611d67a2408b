// SPDX-License-Identifier: Apache-2.0

// Python objects whose memory a save reads, let go of when it is done.

#ifndef CKPTREE_PYTHON_SRC_RELEASE_QUEUE_H_
#define CKPTREE_PYTHON_SRC_RELEASE_QUEUE_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::python {

// Threads of the engine have no GIL and must not wait for it: at the exit of
// the interpreter they would wait for ever. So they put here what is to be
// released, and the main thread does that between two of its instructions, or
// the next call of the store does.
//
// Thread-safe.
class ReleaseQueue : public std::enable_shared_from_this<ReleaseQueue> {
 public:
  // Takes over the reference. Needs no GIL.
  void Add(PyObject* object);

  // Needs the GIL.
  void Drain();

 private:
  absl::Mutex mu_;
  std::vector<PyObject*> objects_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_RELEASE_QUEUE_H_
