// SPDX-License-Identifier: Apache-2.0

#include "core/array/chunk_grid.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_format.h"
#include "schema/limits.h"

namespace ckptree {
namespace {

using Extents = std::span<const std::int64_t>;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

std::int64_t SaturatingAdd(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<std::int64_t>::min()
               : std::numeric_limits<std::int64_t>::max();
}

// How many of the `extent` indices of a dimension a chunk takes, if it takes at
// most `most`: as few chunks as this allows, evenly, multiples of `unit`.
std::int64_t EvenExtent(std::int64_t extent, std::int64_t most,
                        std::int64_t unit) {
  const std::int64_t chunks = CeilDiv(extent, most);
  const std::int64_t even = CeilDiv(extent, chunks);
  return std::min(CeilDiv(even, unit) * unit, extent);
}

// One loop of a copy.
struct Loop {
  std::int64_t count;
  std::int64_t source_stride;
  std::int64_t destination_stride;
};

struct Loops {
  std::array<Loop, schema::kMaxDims> loop;  // The outermost first.
  std::size_t size = 0;
};

// Byte distance of neighbours along each dimension of a buffer.
void Strides(Extents shape, Extents byte_strides, std::int64_t element_bytes,
             std::int64_t* strides) {
  std::int64_t stride = element_bytes;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = byte_strides.empty() ? stride : byte_strides[i];
    // The outermost product is not used and may be the whole array.
    if (i > 0) stride *= shape[i];
  }
}

// Appends a loop inside the others, or lengthens the innermost where both
// buffers go on seamlessly.
void Append(const Loop& loop, Loops* loops) {
  if (loop.count == 1) return;
  if (loops->size > 0) {
    Loop& outer = loops->loop[loops->size - 1];
    if (outer.source_stride == loop.source_stride * loop.count &&
        outer.destination_stride == loop.destination_stride * loop.count) {
      outer = {outer.count * loop.count, loop.source_stride,
               loop.destination_stride};
      return;
    }
  }
  loops->loop[loops->size++] = loop;
}

template <std::size_t kBytes>
void CopyRow(const std::byte* source, std::byte* destination,
             const Loop& loop) {
  for (std::int64_t i = 0; i < loop.count; ++i) {
    std::memcpy(destination, source, kBytes);
    source += loop.source_stride;
    destination += loop.destination_stride;
  }
}

void CopyRow(const std::byte* source, std::byte* destination, const Loop& loop,
             std::int64_t element_bytes) {
  if (loop.source_stride == element_bytes &&
      loop.destination_stride == element_bytes) {
    std::memcpy(destination, source,
                static_cast<std::size_t>(loop.count * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1:
      return CopyRow<1>(source, destination, loop);
    case 2:
      return CopyRow<2>(source, destination, loop);
    case 4:
      return CopyRow<4>(source, destination, loop);
    case 8:
      return CopyRow<8>(source, destination, loop);
    case 16:
      return CopyRow<16>(source, destination, loop);
    default:
      for (std::int64_t i = 0; i < loop.count; ++i) {
        std::memcpy(destination + i * loop.destination_stride,
                    source + i * loop.source_stride,
                    static_cast<std::size_t>(element_bytes));
      }
  }
}

// A plane in which the buffers disagree about the nearest neighbour (a
// transposition), in squares of which both sides' cache lines fit in a cache.
void CopyPlane(const std::byte* source, std::byte* destination,
               const Loop& outer, const Loop& inner,
               std::int64_t element_bytes) {
  constexpr std::int64_t kSide = 64;
  for (std::int64_t i = 0; i < outer.count; i += kSide) {
    const std::int64_t rows = std::min(kSide, outer.count - i);
    for (std::int64_t j = 0; j < inner.count; j += kSide) {
      Loop row = inner;
      row.count = std::min(kSide, inner.count - j);
      for (std::int64_t k = i; k < i + rows; ++k) {
        CopyRow(source + k * outer.source_stride + j * inner.source_stride,
                destination + k * outer.destination_stride +
                    j * inner.destination_stride,
                row, element_bytes);
      }
    }
  }
}

// The loop along which the elements of one buffer are nearer to each other than
// along `inner`; loops.size if there is none.
std::size_t Nearest(const Loops& loops, const Loop& inner,
                    std::int64_t Loop::*stride) {
  std::size_t nearest = loops.size;
  std::int64_t distance = std::abs(inner.*stride);
  for (std::size_t i = 0; i < loops.size; ++i) {
    const std::int64_t other = std::abs(loops.loop[i].*stride);
    if (other != 0 && other < distance) {
      nearest = i;
      distance = other;
    }
  }
  return nearest;
}

void Copy(const std::byte* source, std::byte* destination, Loops loops,
          std::int64_t element_bytes) {
  if (loops.size == 0) {
    std::memcpy(destination, source, static_cast<std::size_t>(element_bytes));
    return;
  }
  const Loop inner = loops.loop[--loops.size];
  std::size_t nearest = Nearest(loops, inner, &Loop::source_stride);
  if (nearest == loops.size) {
    nearest = Nearest(loops, inner, &Loop::destination_stride);
  }
  const bool plane = nearest < loops.size;
  Loop outer = {1, 0, 0};
  if (plane) {
    outer = loops.loop[nearest];
    std::copy(loops.loop.begin() + nearest + 1, loops.loop.begin() + loops.size,
              loops.loop.begin() + nearest);
    --loops.size;
  }

  std::array<std::int64_t, schema::kMaxDims> index = {};
  while (true) {
    if (plane) {
      CopyPlane(source, destination, outer, inner, element_bytes);
    } else {
      CopyRow(source, destination, inner, element_bytes);
    }
    std::size_t i = loops.size;
    while (i > 0) {
      const Loop& loop = loops.loop[i - 1];
      if (++index[i - 1] < loop.count) {
        source += loop.source_stride;
        destination += loop.destination_stride;
        break;
      }
      index[i - 1] = 0;
      source -= loop.source_stride * (loop.count - 1);
      destination -= loop.destination_stride * (loop.count - 1);
      --i;
    }
    if (i == 0) return;
  }
}

}  // namespace

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

std::vector<std::int64_t> DefaultChunkShape(DType dtype, bool packed,
                                            Extents shape,
                                            std::int64_t chunk_bytes) {
  const std::size_t rank = shape.size();
  std::vector<std::int64_t> whole(shape.begin(), shape.end());
  for (std::int64_t& extent : whole) {
    extent = std::max<std::int64_t>(extent, 1);
  }
  const std::int64_t bytes = ArrayBytes(dtype, packed, shape).value_or(0);
  if (rank == 0 || bytes <= chunk_bytes) return whole;

  const int width = BitWidth(dtype);
  const std::int64_t element_bits = packed ? width : (width + 7) / 8 * 8;
  const std::int64_t chunk_bits =
      std::min(chunk_bytes, schema::kMaxArrayBytes) * 8;
  // From the outermost dimension on: the first of which some rows fit.
  std::int64_t row_bits = bytes * 8;
  if (packed) {
    row_bits = std::accumulate(shape.begin(), shape.end(), element_bits,
                               std::multiplies<>());
  }
  bool cut_before = false;  // Whether the dimensions outside are cut to 1.
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t all_rows_bits = row_bits;
    row_bits /= shape[i];
    if (shape[i] == 1) continue;
    // Every run along the outer dimensions must start on a byte.
    const bool starts_on_byte = !cut_before || all_rows_bits % 8 == 0;
    cut_before = true;
    if (!starts_on_byte) continue;
    const std::int64_t unit = 8 / std::gcd(row_bits, std::int64_t{8});
    const std::int64_t most = chunk_bits / row_bits / unit * unit;
    if (most == 0) continue;
    std::fill(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i), 1);
    whole[i] = EvenExtent(shape[i], most, unit);
    return whole;
  }
  if (packed) return whole;                   // No cut is on a byte.
  return std::vector<std::int64_t>(rank, 1);  // One element exceeds a chunk.
}

ChunkGrid::ChunkGrid(const schema::Box& box) : box_(box) {
  const std::size_t rank = box_.shape.size();
  cells_.resize(rank);
  count_ = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    cells_[i] = CeilDiv(box_.shape[i], box_.chunk_shape[i]);
    // A zero dimension ends the matter before another product can overflow.
    if (cells_[i] == 0) count_ = 0;
  }
  if (count_ != 0) {
    for (const std::int64_t cells : cells_) count_ *= cells;
  }
  // Contiguous: dimensions of one index a cell, then one that is cut, then
  // whole ones.
  std::size_t cut = 0;
  while (cut < rank && std::min(box_.chunk_shape[cut], box_.shape[cut]) <= 1) {
    ++cut;
  }
  contiguous_ = true;
  for (std::size_t i = cut + 1; i < rank; ++i) {
    if (cells_[i] > 1) contiguous_ = false;
  }
  if (count_ == 0) contiguous_ = true;
}

ChunkGrid::Cell ChunkGrid::cell(std::int64_t index) const {
  Cell cell;
  cell.start.resize(cells_.size());
  cell.shape.resize(cells_.size());
  for (std::size_t i = cells_.size(); i-- > 0;) {
    const std::int64_t within = index % cells_[i] * box_.chunk_shape[i];
    index /= cells_[i];
    cell.start[i] = box_.start[i] + within;
    cell.shape[i] = std::min(box_.chunk_shape[i], box_.shape[i] - within);
  }
  return cell;
}

std::int64_t ChunkGrid::cell_elements(std::int64_t index) const {
  std::int64_t elements = 1;
  for (std::size_t i = cells_.size(); i-- > 0;) {
    const std::int64_t within = index % cells_[i] * box_.chunk_shape[i];
    index /= cells_[i];
    elements *= std::min(box_.chunk_shape[i], box_.shape[i] - within);
  }
  return elements;
}

std::int64_t ChunkGrid::offset_elements(std::int64_t index) const {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  for (std::size_t i = cells_.size(); i-- > 0;) {
    offset += index % cells_[i] * box_.chunk_shape[i] * stride;
    index /= cells_[i];
    stride *= box_.shape[i];
  }
  return offset;
}

void ChunkGrid::ForEachOverlap(
    Extents start, Extents shape,
    absl::FunctionRef<void(std::int64_t index)> fn) const {
  const std::size_t rank = cells_.size();
  if (count_ == 0) return;
  std::vector<std::int64_t> first(rank);
  std::vector<std::int64_t> last(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t low = std::max(start[i], box_.start[i]);
    const std::int64_t high = std::min(SaturatingAdd(start[i], shape[i]),
                                       box_.start[i] + box_.shape[i]);
    if (shape[i] <= 0 || low >= high) return;
    first[i] = (low - box_.start[i]) / box_.chunk_shape[i];
    last[i] = (high - 1 - box_.start[i]) / box_.chunk_shape[i];
  }
  std::vector<std::int64_t> at = first;
  while (true) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < rank; ++i) index = index * cells_[i] + at[i];
    fn(index);
    std::size_t i = rank;
    while (i > 0 && at[i - 1] == last[i - 1]) {
      --i;
      at[i] = first[i];
    }
    if (i == 0) return;
    ++at[i - 1];
  }
}

bool BoxesOverlap(const schema::Box& a, const schema::Box& b) {
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    const std::int64_t low = std::max(a.start[i], b.start[i]);
    const std::int64_t high = std::min(SaturatingAdd(a.start[i], a.shape[i]),
                                       SaturatingAdd(b.start[i], b.shape[i]));
    if (low >= high) return false;
  }
  return true;
}

absl::Status CheckBox(Extents start, Extents shape, Extents global_shape) {
  if (start.size() != global_shape.size() ||
      shape.size() != global_shape.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the box has a start of rank %d and a shape of rank %d, the array has "
        "rank %d",
        start.size(), shape.size(), global_shape.size()));
  }
  for (std::size_t i = 0; i < global_shape.size(); ++i) {
    if (start[i] < 0 || shape[i] < 0 || global_shape[i] < 0 ||
        start[i] > global_shape[i] || shape[i] > global_shape[i] - start[i]) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "dimension %d: a box of %d at %d is not within 0 to %d", i, shape[i],
          start[i], global_shape[i]));
    }
  }
  return absl::OkStatus();
}

void CopyBox(const std::byte* source, const BoxLayout& source_layout,
             std::byte* destination, const BoxLayout& destination_layout,
             Extents start, Extents shape, std::int64_t element_bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  std::array<std::int64_t, schema::kMaxDims> from;
  std::array<std::int64_t, schema::kMaxDims> to;
  Strides(source_layout.shape, source_layout.byte_strides, element_bytes,
          from.data());
  Strides(destination_layout.shape, destination_layout.byte_strides,
          element_bytes, to.data());
  Loops loops;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    source += (start[i] - source_layout.start[i]) * from[i];
    destination += (start[i] - destination_layout.start[i]) * to[i];
    Append({shape[i], from[i], to[i]}, &loops);
  }
  Copy(source, destination, loops, element_bytes);
}

void Gather(const std::byte* base, Extents byte_strides, Extents shape,
            std::int64_t element_bytes, std::byte* destination) {
  const std::array<std::int64_t, schema::kMaxDims> origin = {};
  const Extents start = Extents(origin).first(shape.size());
  CopyBox(base, {start, shape, byte_strides}, destination, {start, shape},
          start, shape, element_bytes);
}

}  // namespace ckptree
