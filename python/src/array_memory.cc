// SPDX-License-Identifier: Apache-2.0

// Memory that arrays are read into.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "absl/time/time.h"
#include "python/src/bindings.h"
#include "python/src/kept_memory.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// As XLA aligns what it takes over on a CPU, and as wide as a cache line.
constexpr std::size_t kAlignment = 64;
// From here on memory is of whole pages: the disk puts chunks there without a
// copy, and it is kept for the arrays that come next.
constexpr std::size_t kLarge = std::size_t{1} << 20;

// One piece, given back when the array goes.
struct Owned {
  KeptMemory::Piece piece;

  explicit Owned(std::size_t bytes) : piece(KeptMemory::Of().Take(bytes)) {
    if (piece.memory == nullptr) throw std::bad_alloc();
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { KeptMemory::Of().GiveBack(piece); }
};

Bytes Large(std::size_t bytes) {
  auto owned = std::make_unique<Owned>(bytes);
  void* const memory = owned->piece.memory;
  nb::capsule owner(owned.get(), [](void* held) noexcept {
    std::default_delete<Owned>()(static_cast<Owned*>(held));
  });
  static_cast<void>(owned.release());
  return {memory, {bytes}, owner};
}

Bytes ArrayMemory(std::size_t bytes) {
  if (bytes >= kLarge) return Large(bytes);
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
  // For tests: bytes of arrays that went and are kept, and for how long.
  m.def("kept_memory", [] { return KeptMemory::Of().kept(); });
  m.def(
      "keep_memory",
      [](double seconds) { KeptMemory::Of().SetIdle(absl::Seconds(seconds)); },
      nb::arg("seconds"));
}

}  // namespace ckptree::python
