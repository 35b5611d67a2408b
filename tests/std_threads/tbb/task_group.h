// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_TASK_GROUP_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_TASK_GROUP_H_

#include <thread>
#include <utility>
#include <vector>

namespace tbb {

// A thread for each task.
class task_group {
 public:
  template <typename Function>
  void run(Function function) {
    threads_.emplace_back(std::move(function));
  }

  void wait() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_TASK_GROUP_H_
