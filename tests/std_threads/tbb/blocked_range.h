// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_BLOCKED_RANGE_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_BLOCKED_RANGE_H_

#include <cstddef>

namespace tbb {

template <typename Value>
class blocked_range {
 public:
  blocked_range(Value begin, Value end, std::size_t grain = 1)
      : begin_(begin), end_(end), grain_(grain) {}

  Value begin() const { return begin_; }
  Value end() const { return end_; }
  std::size_t grainsize() const { return grain_; }

 private:
  Value begin_;
  Value end_;
  std::size_t grain_;
};

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_BLOCKED_RANGE_H_
