// SPDX-License-Identifier: Apache-2.0

// Memory that arrays are read into.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "python/src/bindings.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// As XLA aligns what it takes over on a CPU, and as wide as a cache line.
constexpr std::size_t kAlignment = 64;

Bytes ArrayMemory(std::size_t bytes) {
  // aligned_alloc() takes whole multiples.
  void* const memory =
      std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  nb::capsule owner(memory, [](void* held) noexcept { std::free(held); });
  return {memory, {bytes}, owner};
}

}  // namespace

void BindArrayMemory(nb::module_& m) {
  m.def("array_memory", &ArrayMemory, nb::arg("nbytes"));
}

}  // namespace ckptree::python
