// SPDX-License-Identifier: Apache-2.0

// Arrays whose elements cannot change, taken where they lie: those of JAX.

#ifndef CKPTREE_PYTHON_SRC_FROZEN_BUFFERS_H_
#define CKPTREE_PYTHON_SRC_FROZEN_BUFFERS_H_

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <optional>

#include "ckptree/tensor.h"

namespace ckptree::python {

// Hot path: per leaf.
//
// Holds memory by the protocol of buffers: a tenth of the time that it takes to
// ask JAX for shards and NumPy for views of them. JAX does not give memory away
// that is held, so no donation can change it.
//
// Confined to one thread, which has the GIL.
class FrozenBuffers {
 public:
  // The elements of `array`; nothing where it has several shards, lies on a
  // device, was deleted, or has elements that the protocol has no name for.
  std::optional<Tensor> Hold(nanobind::handle array);

  // What lets go of all of them when it is destroyed.
  nanobind::object Release();

 private:
  struct Held;
  struct Free {
    void operator()(Held* held) const;
  };

  std::unique_ptr<Held, Free> held_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_FROZEN_BUFFERS_H_
