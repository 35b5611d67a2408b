// SPDX-License-Identifier: Apache-2.0

#include "python/src/release_queue.h"

namespace ckptree::python {
namespace {

int DrainAndForget(void* argument) {
  const std::unique_ptr<std::shared_ptr<ReleaseQueue>> queue(
      static_cast<std::shared_ptr<ReleaseQueue>*>(argument));
  (*queue)->Drain();
  return 0;
}

}  // namespace

void ReleaseQueue::Add(PyObject* object) {
  {
    absl::MutexLock lock(&mu_);
    objects_.push_back(object);
  }
  auto self =
      std::make_unique<std::shared_ptr<ReleaseQueue>>(shared_from_this());
  // Python's own queue is short; where it is full the next call drains this
  // one.
  if (Py_AddPendingCall(DrainAndForget, self.get()) == 0) {
    static_cast<void>(self.release());
  }
}

void ReleaseQueue::Drain() {
  std::vector<PyObject*> objects;
  {
    absl::MutexLock lock(&mu_);
    objects.swap(objects_);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace ckptree::python
