// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/direct_buffers.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace ckptree::kv {

DirectBuffers& DirectBuffers::Shared() {
  static constinit DirectBuffers buffers;
  return buffers;
}

DirectBuffers::Lease DirectBuffers::Take() {
  for (std::atomic<std::byte*>& slot : idle_) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    std::byte* const memory = slot.exchange(nullptr);
    if (memory != nullptr) return {this, memory};
  }
  constexpr std::size_t kOfOne = kHugePage / kBytes;
  if (made_.fetch_add(kOfOne) + kOfOne > kMost) {
    made_.fetch_sub(kOfOne);
    return {this, nullptr};
  }
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, kHugePage));
  if (memory == nullptr) {
    made_.fetch_sub(kOfOne);
    return {this, nullptr};
  }
  // Advice: without such pages it is as it is.
  (void)madvise(memory, kHugePage, MADV_HUGEPAGE);
  for (std::size_t i = 1; i < kOfOne; ++i) Keep(memory + i * kBytes);
  return {this, memory};
}

// There is a slot for each that was made.
void DirectBuffers::Keep(std::byte* memory) {
  while (true) {
    for (std::atomic<std::byte*>& slot : idle_) {
      std::byte* none = nullptr;
      if (slot.compare_exchange_strong(none, memory)) return;
    }
  }
}

}  // namespace ckptree::kv
