// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "core/version/fresh_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckptree::internal {
namespace {

// Its whole pages.
std::span<std::byte> WholePages(std::span<std::byte> memory) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + memory.size()) / page * page;
  if (first >= end) return {};
  return memory.subspan(first - begin, end - first);
}

// By the first and the last page: asking the kernel to make pages that are
// there takes it as long as a tenth of the copy into them.
bool IsThere(std::span<std::byte> pages) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::byte* const at :
       {pages.data(), pages.data() + pages.size() - page}) {
    unsigned char state = 0;
    if (mincore(at, page, &state) != 0 || (state & 1U) == 0) return false;
  }
  return true;
}

}  // namespace

void FreshPages::Make(std::size_t index) {
#ifdef MADV_POPULATE_WRITE
  if (taken_[index].exchange(true, std::memory_order_relaxed)) return;
  const std::span<std::byte> pages = WholePages(pieces_[index]);
  if (pages.size() < kWorthIt || IsThere(pages)) return;
  // Older kernels do not know it.
  (void)madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE);
#else
  (void)index;
#endif
}

void FreshPages::MakeAhead(const std::atomic<std::size_t>& next,
                           const FirstError& error) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (error.any()) return;
    i = std::max(i, next.load(std::memory_order_relaxed));
    if (i < pieces_.size()) Make(i);
  }
}

}  // namespace ckptree::internal
