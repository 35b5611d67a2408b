// SPDX-License-Identifier: Apache-2.0

// How a box of an array is cut into chunks, and copies between boxes.

#ifndef CKPTREE_CORE_ARRAY_CHUNK_GRID_H_
#define CKPTREE_CORE_ARRAY_CHUNK_GRID_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ckptree/dtype.h"
#include "schema/leaf_record.h"

namespace ckptree {

// "[2, 3]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

// The chunk shape of a box of `shape`: each chunk is one contiguous run of the
// box's row-major bytes, at most `chunk_bytes` long, as few chunks as that
// allows and of about equal size. Trailing dimensions are whole, one dimension
// is cut, the ones before it are 1. Every entry is >= 1, also where the shape
// has a zero; an empty shape gives an empty result.
//
// A single element larger than `chunk_bytes` is a chunk of its own. Chunks of
// packed elements start on a byte; where no cut within `chunk_bytes` does that
// the result is one chunk of the whole box, so check its size.
//
// REQUIRES: ArrayBytes(dtype, packed, shape) has a value;
// chunk_bytes >= 1.
std::vector<std::int64_t> DefaultChunkShape(DType dtype, bool packed,
                                            std::span<const std::int64_t> shape,
                                            std::int64_t chunk_bytes);

// The cells of a box: one for each chunk, in row-major order of the grid.
//
// Thread-compatible; holds a copy of the box.
class ChunkGrid {
 public:
  struct Cell {
    std::vector<std::int64_t> start;  // In the whole array, not in the box.
    std::vector<std::int64_t> shape;
  };

  // REQUIRES: `box` passed CheckBox against the array's shape, and every entry
  // of chunk_shape, which has the same rank, is >= 1.
  explicit ChunkGrid(const schema::Box& box);

  const schema::Box& box() const { return box_; }

  // 0 where a dimension of the box is 0; 1 for a box of rank 0.
  std::int64_t count() const { return count_; }

  // REQUIRES (all four): 0 <= index < count().
  Cell cell(std::int64_t index) const;
  std::int64_t cell_elements(std::int64_t index) const;

  // Where the cell's first element is among the box's row-major elements.
  // The cell is the run [offset, offset + cell_elements) where contiguous().
  std::int64_t offset_elements(std::int64_t index) const;

  // True if every cell is one contiguous run of the box's row-major elements;
  // the runs then follow each other in the order of the cells.
  bool contiguous() const { return contiguous_; }

  // Calls `fn` with the index of each cell that shares an element with the box
  // at `start` (in the whole array) of `shape`, in ascending order.
  // REQUIRES: the rank of both is the grid's.
  void ForEachOverlap(std::span<const std::int64_t> start,
                      std::span<const std::int64_t> shape,
                      absl::FunctionRef<void(std::int64_t index)> fn) const;

 private:
  schema::Box box_;
  std::vector<std::int64_t> cells_;  // Along each dimension.
  std::int64_t count_ = 0;
  bool contiguous_ = false;
};

// True if both boxes share an element. REQUIRES: equal ranks, CheckBox passed.
bool BoxesOverlap(const schema::Box& a, const schema::Box& b);

// OK if the box at `start` of `shape` has the rank of `global_shape` and lies
// within it. kInvalidArgument with the dimension at fault.
absl::Status CheckBox(std::span<const std::int64_t> start,
                      std::span<const std::int64_t> shape,
                      std::span<const std::int64_t> global_shape);

// Where the elements of one box lie in memory: the element at `start` (in the
// whole array) is at the buffer's pointer. Views what it was made of.
struct BoxLayout {
  std::span<const std::int64_t> start;
  std::span<const std::int64_t> shape;
  // In bytes, possibly negative or 0. Empty: row-major without gaps.
  std::span<const std::int64_t> byte_strides = {};
};

// Copies the elements of the box at `start` of `shape` from one buffer to the
// other. Does nothing where a dimension is 0; rank 0 is one element.
//
// Elements of packed sub-byte arrays have no address: copy whole cells instead.
//
// REQUIRES: equal ranks <= schema::kMaxDims; the box lies within both layouts;
// the buffers do not overlap; element_bytes >= 1.
void CopyBox(const std::byte* source, const BoxLayout& source_layout,
             std::byte* destination, const BoxLayout& destination_layout,
             std::span<const std::int64_t> start,
             std::span<const std::int64_t> shape, std::int64_t element_bytes);

// Writes the elements at `base` (the one at index 0, 0, ...) to `destination`
// row-major, without gaps. `byte_strides` may be negative or 0; empty is
// row-major. REQUIRES: as CopyBox.
void Gather(const std::byte* base, std::span<const std::int64_t> byte_strides,
            std::span<const std::int64_t> shape, std::int64_t element_bytes,
            std::byte* destination);

}  // namespace ckptree

#endif  // CKPTREE_CORE_ARRAY_CHUNK_GRID_H_
