// SPDX-License-Identifier: Apache-2.0

// In the place of oneTBB's, for the thread sanitizer: see ../README.md.

#ifndef CKPTREE_TESTS_STD_THREADS_TBB_ENUMERABLE_THREAD_SPECIFIC_H_
#define CKPTREE_TESTS_STD_THREADS_TBB_ENUMERABLE_THREAD_SPECIFIC_H_

#include <map>
#include <mutex>
#include <thread>

namespace tbb {

template <typename Value>
class enumerable_thread_specific {
 public:
  Value& local() {
    const std::lock_guard<std::mutex> lock(mu_);
    return values_[std::this_thread::get_id()];
  }

 private:
  std::mutex mu_;
  std::map<std::thread::id, Value> values_;
};

}  // namespace tbb

#endif  // CKPTREE_TESTS_STD_THREADS_TBB_ENUMERABLE_THREAD_SPECIFIC_H_
