// SPDX-License-Identifier: Apache-2.0

// Memory as a new array has it.

#ifndef CKPTREE_BENCH_FRESH_MEMORY_H_
#define CKPTREE_BENCH_FRESH_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <span>

#include "bench/measure.h"

namespace ckptree::bench {

// Pages that nobody touched, as new arrays have: no huge ones, as memory.py
// says.
class FreshMemory {
 public:
  explicit FreshMemory(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) Fail("no memory");
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  ~FreshMemory() { munmap(memory_, bytes_); }

  std::span<std::byte> bytes() {
    return {static_cast<std::byte*>(memory_), bytes_};
  }

 private:
  const std::size_t bytes_;
  void* const memory_;
};

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_FRESH_MEMORY_H_
