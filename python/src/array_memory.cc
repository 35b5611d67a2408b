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
// Of large ones a page: the disk puts chunks there without a copy.
constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kLargeAlignment = 4096;

Bytes ArrayMemory(std::size_t bytes) {
  const std::size_t alignment = bytes < kLarge ? kAlignment : kLargeAlignment;
  // aligned_alloc() takes whole multiples.
  void* const memory =
      std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  nb::capsule owner(memory, [](void* held) noexcept { std::free(held); });
  return {memory, {bytes}, owner};
}

}  // namespace

void BindArrayMemory(nb::module_& m) {
  m.def("array_memory", &ArrayMemory, nb::arg("nbytes"));
}

}  // namespace ckptree::python
