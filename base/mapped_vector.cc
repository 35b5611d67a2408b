// SPDX-License-Identifier: Apache-2.0

#include "base/mapped_vector.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace ckptree::base {

void* MapMemory(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void UnmapMemory(void* memory, std::size_t bytes) { munmap(memory, bytes); }

}  // namespace ckptree::base
