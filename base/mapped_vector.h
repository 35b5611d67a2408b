// SPDX-License-Identifier: Apache-2.0

// Vectors whose memory goes back to the system when they are gone.

#ifndef CKPTREE_BASE_MAPPED_VECTOR_H_
#define CKPTREE_BASE_MAPPED_VECTOR_H_

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace ckptree::base {

// Memory of the system, by whole pages of zeros; std::bad_alloc where there is
// none. Given back with the same `bytes`.
void* MapMemory(std::size_t bytes);
void UnmapMemory(void* memory, std::size_t bytes);

// Maps what is large, as malloc does until its threshold for that was raised by
// the first large piece that was freed: from then on it takes large pieces from
// heaps of threads, whose ends it keeps. What a save makes for each of its
// leaves is large for a moment and stayed resident for good.
template <typename T>
struct MappedAllocator {
  using value_type = T;

  // Below that the pages at its end would be the greater waste.
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 20;

  MappedAllocator() = default;
  template <typename U>
  MappedAllocator(const MappedAllocator<U>&) {}  // NOLINT: as containers ask

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kLeastBytes) return std::allocator<T>().allocate(count);
    return static_cast<T*>(MapMemory(bytes));
  }
  void deallocate(T* memory, std::size_t count) {
    if (count * sizeof(T) < kLeastBytes) {
      std::allocator<T>().deallocate(memory, count);
    } else {
      UnmapMemory(memory, count * sizeof(T));
    }
  }

  friend bool operator==(const MappedAllocator&, const MappedAllocator&) {
    return true;
  }
};

template <typename T>
using MappedVector = std::vector<T, MappedAllocator<T>>;

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_MAPPED_VECTOR_H_
