// SPDX-License-Identifier: Apache-2.0

// A step as Python has it: that of an open store, and the store.

#ifndef CKPTREE_PYTHON_SRC_STEP_OBJECT_H_
#define CKPTREE_PYTHON_SRC_STEP_OBJECT_H_

#include <memory>
#include <optional>
#include <utility>

#include "python/src/open_store.h"
#include "python/src/waiting.h"

namespace ckptree::python {

struct StepObject {
  std::shared_ptr<OpenStore> store;
  std::shared_ptr<OpenStore::OpenStep> open;

  // Calls `use` with the step, without the GIL; in a thread of its own, which
  // Ctrl-C ends, where it may wait for an object store.
  template <typename Use>
  auto With(Use&& use) const {
    using Result = decltype(store->WithStep(*open, use));
    std::optional<Result> result = WithoutGil([&]() -> std::optional<Result> {
      if (store->MayReadRemote()) return std::nullopt;
      return store->WithStep(*open, use);
    });
    if (!result.has_value()) {
      RunInterruptibly(
          [&](Work&) { result.emplace(store->WithStep(*open, use)); },
          nanobind::none(), {store->cancel()});
    }
    store->release_queue()->Drain();
    return *std::move(result);
  }
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STEP_OBJECT_H_
