// SPDX-License-Identifier: Apache-2.0

// Host memory that saves copy into, bounded and used again.

#ifndef CKPTREE_CORE_SAVE_STAGING_POOL_H_
#define CKPTREE_CORE_SAVE_STAGING_POOL_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/options.h"

namespace ckptree {

// Lends buffers up to a number of bytes and keeps those that come back: a page
// that was touched before is filled about ten times faster than a fresh one.
//
// Buffers have sizes 64 KiB, 96 KiB, 128 KiB, 192 KiB ... 16 MiB, or whole
// pages above; each takes 4 KiB more of the limit. New pages are untouched, so
// the thread that fills them places them.
//
// Requests are granted in the order they came, so a large one is not passed by
// small ones forever. One that alone exceeds the limit is granted when nothing
// else is lent, and nothing is lent beside it. A thread that waits while it
// holds leases can wait for itself: use a deadline there.
//
// Thread-safe. Must outlive its leases.
class StagingPool {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kPrefixBytes = 128;

  // One buffer, given back on destruction. Confined to one thread at a time.
  class Lease {
   public:
    Lease() = default;  // Holds nothing.
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { Release(); }

    // As many bytes as were asked for, aligned to kAlignment; kPrefixBytes
    // before them belong to the lease too. Their contents are what the last
    // user left.
    std::span<std::byte> bytes() const { return {payload_, size_}; }

    // Gives the buffer back now; nothing on an empty lease.
    void Release();

    explicit operator bool() const { return pool_ != nullptr; }

   private:
    friend class StagingPool;

    StagingPool* pool_ = nullptr;
    void* memory_ = nullptr;
    std::size_t slot_bytes_ = 0;
    std::byte* payload_ = nullptr;
    std::size_t size_ = 0;
  };

  // An allocator without functions means anonymous pages of the system.
  explicit StagingPool(std::size_t limit_bytes, HostAllocator allocator = {});
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;
  // REQUIRES: every lease came back.
  ~StagingPool();

  // Waits until `bytes` (0 is allowed) can be lent. kDeadlineExceeded past
  // `deadline`, kCancelled once `*cancelled` (where given) is true,
  // kResourceExhausted if the allocator has no memory even after Trim().
  // Who sets `*cancelled` calls WakeCancelled() afterwards.
  absl::StatusOr<Lease> Acquire(std::size_t bytes,
                                absl::Time deadline = absl::InfiniteFuture(),
                                const std::atomic<bool>* cancelled = nullptr);

  // Nothing where Acquire would wait or fail.
  std::optional<Lease> TryAcquire(std::size_t bytes);

  // Lets waiting calls look at their `cancelled` again.
  void WakeCancelled();

  std::size_t limit() const { return limit_; }
  // Bytes lent, in whole buffers.
  std::size_t in_use() const;
  // Bytes lent or kept for reuse: <= limit() but for one large request.
  std::size_t reserved() const;

  // Gives every kept buffer back to the system.
  void Trim();

 private:
  // Memory that left the books and must be freed without the lock.
  using Evicted = std::vector<std::pair<void*, std::size_t>>;

  bool Fits(std::size_t slot_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Books one buffer; the kept one, or null if it must be allocated.
  void* Book(std::size_t slot_bytes, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Lease> Fill(std::size_t bytes, std::size_t slot_bytes,
                             void* memory, const Evicted& evicted);
  void Return(void* memory, std::size_t slot_bytes);
  void Free(const Evicted& evicted);

  // Null also where the allocator throws.
  void* Allocate(std::size_t bytes) const;

  const std::size_t limit_;
  const HostAllocator allocator_;

  mutable absl::Mutex mu_;
  std::map<std::size_t, std::vector<void*>> kept_ ABSL_GUARDED_BY(mu_);
  std::size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  // Calls of Acquire that wait or are about to, first come first.
  std::vector<const void*> queue_ ABSL_GUARDED_BY(mu_);
};

// What a store takes of this machine's memory for staging, where nobody said.
std::size_t DefaultStagingBytes();

}  // namespace ckptree

#endif  // CKPTREE_CORE_SAVE_STAGING_POOL_H_
