// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_GLOBAL_CONTROL_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_GLOBAL_CONTROL_H_

#include <cstddef>

namespace tbb {

// An arena has as many threads here as it is made with.
class global_control {
 public:
  enum parameter { max_allowed_parallelism };
  global_control(parameter, std::size_t) {}
};

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_GLOBAL_CONTROL_H_
