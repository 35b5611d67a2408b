// SPDX-License-Identifier: Apache-2.0

// A device whose memory no processor reaches: bytes in a file that only the
// copy functions read.

#ifndef CKPTREE_TESTS_CORE_FAKE_DEVICE_H_
#define CKPTREE_TESTS_CORE_FAKE_DEVICE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/options.h"
#include "ckptree/tensor.h"
#include "gtest/gtest.h"

namespace ckptree::testing {

// Arrays on the device, and memory of the host that it can copy to. Outlives
// the store. Thread-safe, but for Put().
class FakeDevice {
 public:
  // What a copy does before it: by the array and the offset. Of any thread.
  using Before = std::function<absl::Status(int array, std::uint64_t offset)>;

  FakeDevice() : file_(memfd_create("device", MFD_CLOEXEC)) {
    EXPECT_GE(file_, 0);
  }
  ~FakeDevice() {
    close(file_);
    EXPECT_EQ(pinned(), 0u);
  }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  // An array of `bytes`, which the caller has no pointer to.
  Tensor Put(const std::vector<std::byte>& bytes) {
    const std::uint64_t begin = end_;
    const int number = arrays_++;
    EXPECT_EQ(
        pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(begin)),
        static_cast<ssize_t>(bytes.size()));
    end_ += bytes.size();
    {
      const absl::MutexLock lock(&mu_);
      copied_.push_back({.size = bytes.size(), .copies = {}});
    }
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(bytes.size())};
    tensor.copy = [this, number, begin](std::uint64_t offset,
                                        std::span<std::byte> to) {
      return Copy(number, begin, offset, to);
    };
    return tensor;
  }

  // The program goes on, and overwrites all there is.
  void Wipe() {
    EXPECT_EQ(ftruncate(file_, 0), 0);
    EXPECT_EQ(ftruncate(file_, static_cast<off_t>(end_)), 0);
  }

  // To be set while nothing is saved.
  void SetBefore(Before before) { before_ = std::move(before); }

  // Page-locked memory, as it were.
  HostAllocator Allocator() {
    return {[this](std::size_t bytes) -> void* {
              void* const memory = std::malloc(bytes);
              const absl::MutexLock lock(&mu_);
              pinned_[static_cast<std::byte*>(memory)] = bytes;
              pinned_bytes_ += bytes;
              most_pinned_ = std::max(most_pinned_, pinned_bytes_);
              return memory;
            },
            [this](void* memory, std::size_t bytes) {
              {
                const absl::MutexLock lock(&mu_);
                EXPECT_EQ(pinned_.erase(static_cast<std::byte*>(memory)), 1u);
                pinned_bytes_ -= bytes;
              }
              std::free(memory);
            }};
  }
  std::size_t pinned() const {
    const absl::MutexLock lock(&mu_);
    return pinned_bytes_;
  }
  std::size_t most_pinned() const {
    const absl::MutexLock lock(&mu_);
    return most_pinned_;
  }
  // Copies that went elsewhere: how many there were, and at a time.
  int unpinned_copies() const { return unpinned_; }
  int most_unpinned_copies() const { return most_unpinned_; }

  // How often the byte of an array was copied that was copied least, and most.
  std::pair<int, int> TimesCopied(int array) const {
    const absl::MutexLock lock(&mu_);
    const Copied& copied = copied_[static_cast<std::size_t>(array)];
    // By how much the count grows at a byte.
    std::map<std::uint64_t, int> growth{{0, 0}};
    for (const auto& [from, bytes] : copied.copies) {
      ++growth[from];
      --growth[from + bytes];
    }
    int times = 0, most = 0;
    int least = std::numeric_limits<int>::max();
    for (const auto& [at, grown] : growth) {
      times += grown;
      if (at >= copied.size) break;
      least = std::min(least, times);
      most = std::max(most, times);
    }
    return {least, most};
  }

 private:
  absl::Status Copy(int array, std::uint64_t begin, std::uint64_t offset,
                    std::span<std::byte> to) {
    if (before_) {
      if (absl::Status status = before_(array, offset); !status.ok()) {
        return status;
      }
    }
    const bool elsewhere = !IsPinned(to);
    if (elsewhere) {
      ++unpinned_;
      const int now = ++unpinned_now_;
      int most = most_unpinned_;
      while (most < now && !most_unpinned_.compare_exchange_weak(most, now)) {
      }
    }
    const ssize_t got =
        pread(file_, to.data(), to.size(), static_cast<off_t>(begin + offset));
    {
      const absl::MutexLock lock(&mu_);
      copied_[static_cast<std::size_t>(array)].copies.emplace_back(offset,
                                                                   to.size());
    }
    if (elsewhere) --unpinned_now_;
    return got == static_cast<ssize_t>(to.size())
               ? absl::OkStatus()
               : absl::InternalError("a short read of the device");
  }

  bool IsPinned(std::span<std::byte> to) const {
    const absl::MutexLock lock(&mu_);
    auto it = pinned_.upper_bound(to.data());
    if (it == pinned_.begin()) return false;
    --it;
    return to.data() + to.size() <= it->first + it->second;
  }

  const int file_;
  std::uint64_t end_ = 0;
  int arrays_ = 0;
  Before before_;
  std::atomic<int> unpinned_{0};
  std::atomic<int> unpinned_now_{0};
  std::atomic<int> most_unpinned_{0};

  struct Copied {
    std::uint64_t size;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> copies;  // At, bytes.
  };
  mutable absl::Mutex mu_;
  std::vector<Copied> copied_ ABSL_GUARDED_BY(mu_);  // By array.
  std::map<std::byte*, std::size_t> pinned_ ABSL_GUARDED_BY(mu_);
  std::size_t pinned_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t most_pinned_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_CORE_FAKE_DEVICE_H_
