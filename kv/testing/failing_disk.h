// SPDX-License-Identifier: Apache-2.0

// A disk that fails the chosen operation.

#ifndef CKPTREE_KV_TESTING_FAILING_DISK_H_
#define CKPTREE_KV_TESTING_FAILING_DISK_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace ckptree::kv {

// Counts the operations that change something and says which of them fail.
//
// Thread-safe.
class FailurePlan {
 public:
  // Counts from 0 again; the operation `at` fails, and with `from_then_on` all
  // after it. -1: none.
  void Arm(std::int64_t at, bool from_then_on);

  // Where it throws std::bad_alloc instead: there was no memory for it.
  void Throw(bool throws) { throws_ = throws; }
  bool throws() const { return throws_; }

  // How many have failed since Arm().
  std::int64_t failed() const { return failed_; }

  // Counts one operation; true where it must fail.
  bool Fails();

  // From now on sync_file_range() fails, which no other operation is counted
  // with.
  void FailWriteBacks(bool fail) { fail_write_backs_ = fail; }
  bool WriteBackFails() {
    if (fail_write_backs_) ++failed_write_backs_;
    return fail_write_backs_;
  }
  std::int64_t failed_write_backs() const { return failed_write_backs_; }

 private:
  std::atomic<bool> fail_write_backs_{false};
  std::atomic<std::int64_t> failed_write_backs_{0};
  std::atomic<bool> throws_{false};
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::int64_t> fail_at_{-1};
  std::atomic<bool> sticky_{false};
  std::atomic<std::int64_t> failed_{0};
};

// For Options::file_system: the real one, failing with an I/O error before the
// operation happens. `plan` must outlive it.
std::shared_ptr<void> MakeFailingDisk(FailurePlan* plan);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_FAILING_DISK_H_
