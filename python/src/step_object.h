// SPDX-License-Identifier: Apache-2.0

// A step as Python has it: that of an open store, and the store.

#ifndef CKPTREE_PYTHON_SRC_STEP_OBJECT_H_
#define CKPTREE_PYTHON_SRC_STEP_OBJECT_H_

#include <memory>

#include "python/src/open_store.h"
#include "python/src/waiting.h"

namespace ckptree::python {

struct StepObject {
  std::shared_ptr<OpenStore> store;
  std::shared_ptr<OpenStore::OpenStep> open;

  // Calls `use` with the step, without the GIL.
  template <typename Use>
  auto With(Use&& use) const {
    auto result = WithoutGil([&] { return store->WithStep(*open, use); });
    store->release_queue()->Drain();
    return result;
  }
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STEP_OBJECT_H_
