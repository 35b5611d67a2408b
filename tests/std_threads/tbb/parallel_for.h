// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_PARALLEL_FOR_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_PARALLEL_FOR_H_

#include <algorithm>
#include <cstddef>

#include "tbb/blocked_range.h"
#include "tbb/task_arena.h"

namespace tbb {

class simple_partitioner {};

template <typename Function>
void parallel_for(std::size_t begin, std::size_t end,
                  const Function& function) {
  if (begin >= end) return;
  OnSlots(end - begin, [&](std::size_t i) { function(begin + i); });
}

template <typename Value, typename Function>
void parallel_for(const blocked_range<Value>& range, const Function& function,
                  simple_partitioner = {}) {
  if (range.begin() >= range.end()) return;
  const std::size_t size = range.end() - range.begin();
  const std::size_t grain = range.grainsize();
  OnSlots((size + grain - 1) / grain, [&](std::size_t i) {
    const Value begin = range.begin() + i * grain;
    function(blocked_range<Value>(begin, std::min(begin + grain, range.end()),
                                  grain));
  });
}

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_PARALLEL_FOR_H_
