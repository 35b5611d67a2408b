// SPDX-License-Identifier: Apache-2.0

// Arrays as the engine takes them: type, shape, memory; nothing owned.
//
//   std::vector<float> w(768 * 768);
//   step.Put("w", {ckptree::DType::kFloat32, {768, 768}, w.data()});
//
// A rank that has a box of an array puts that box:
//
//   ckptree::Tensor half{ckptree::DType::kFloat32, {384, 768}, w.data()};
//   half.start = {384, 0};
//   half.global_shape = {768, 768};
//   step.Put("w", half);

#ifndef CKPTREE_TENSOR_H_
#define CKPTREE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/dtype.h"
#include "ckptree/path.h"
#include "ckptree/statistics.h"

namespace ckptree {

// Elements along each dimension, the slowest one first (row-major). Empty: one
// element. At most 64 dimensions; a dimension may be 0.
using Shape = std::vector<std::int64_t>;

// Elements [start, start + shape) of an array.
struct BoxSpec {
  Shape start = {};
  Shape shape = {};

  friend bool operator==(const BoxSpec&, const BoxSpec&) = default;
};

// Fills `destination` with the bytes [offset, offset + destination.size()) of
// the tensor's box, row-major: for memory that the processor cannot read, as
// that of a device. Returns when they are there. Called from several threads at
// once, a chunk or less at a time, until the save is staged, where the staging
// pool has room ahead of the save; each byte once, and again of arrays below
// 32 KiB that the pool has no room for, and of what failed. `destination` is
// memory of StoreOptions::host_allocator, but for what is below 256 bytes, lent
// (Ownership::kBorrow), or met while the pool was full. Must not throw. An
// error fails the save with this code, the array's path and the message.
using CopyFn = std::function<absl::Status(std::uint64_t offset,
                                          std::span<std::byte> destination)>;

// What Put does with the caller's memory. Copying costs a memcpy, and memory
// for the time of the save; lending costs neither, and the trainer must wait
// before it writes to its arrays again.
enum class Ownership {
  kCopy,    // Copied before the save is staged; then the caller's again.
  kBorrow,  // Read in place: it must not change until WaitStaged returned OK,
            // which is then after the bytes were compared and written.
};

// What Put takes. Refers to the caller's memory and owns none of it: see
// Ownership for how long that must stay as it is. Mistakes in it are returned
// by StepBuilder::status().
struct Tensor {
  DType dtype = DType::kNone;
  Shape shape = {};  // Of the elements at `data`.

  // First element; may be null where there are none or `copy` is set. Native
  // (little-endian) byte order. Types below 8 bits: see `packed`.
  const void* data = nullptr;

  // Readable bytes from the lowest address that the strides reach; 0: not
  // known, not checked. Without strides: from `data`.
  std::size_t size_bytes = 0;

  // Bytes from one element to the next for each dimension, any sign; empty:
  // dense, row-major.
  std::vector<std::int64_t> strides = {};

  // Types below 8 bits: two or more elements per byte (see ckptree/dtype.h).
  // Such an array is put and read whole, dense, and not by boxes. It is cut
  // into chunks where its rows end on bytes: one above 16 MiB whose rows do
  // not, so that it cannot be cut, is refused.
  bool packed = false;

  // The array of which this is a box, where it is not the whole: `shape`
  // elements from `start` of an array of `global_shape`. Several Puts to the
  // same path with boxes that do not overlap make up one leaf.
  Shape start = {};
  Shape global_shape = {};

  // Instead of `data`, which is null then: fetches bytes on demand.
  CopyFn copy = {};

  // Shape of the chunks; empty: chosen by the engine.
  Shape chunk_shape = {};

  // A mark that the caller reads back, e.g. "prng:threefry2x32"; at most 4 KiB.
  std::string tag = {};
};

}  // namespace ckptree

#endif  // CKPTREE_TENSOR_H_
