// SPDX-License-Identifier: Apache-2.0

#include "core/save/staging_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/process/guarded_call.h"

namespace ckptree {
namespace {

constexpr std::size_t kPage = 4 << 10;
constexpr std::size_t kSmallest = 64 << 10;
constexpr std::size_t kLargest = 16 << 20;
constexpr std::size_t kHugePage = 2 << 20;

// Room for the prefix and for aligning the payload after it.
constexpr std::size_t kSlack = kPage;
static_assert(kSlack >= StagingPool::kPrefixBytes + StagingPool::kAlignment);

std::size_t AlignUp(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

// The size of the buffer that `bytes` are lent in; 0 if no memory has it.
std::size_t SlotBytes(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return 0;
  if (bytes > kLargest) return AlignUp(bytes, kPage) + kSlack;
  std::size_t size = kSmallest;
  while (size < bytes) {
    if (size + size / 2 >= bytes) return size + size / 2 + kSlack;
    size *= 2;
  }
  return size + kSlack;
}

void* MapPages(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Advice: a refusal costs time only.
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

HostAllocator OrPages(HostAllocator allocator) {
  if (allocator.allocate != nullptr) return allocator;
  return {MapPages,
          [](void* memory, std::size_t bytes) { munmap(memory, bytes); }};
}

absl::Status OutOfMemory(std::size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "no host memory for a staging buffer of %d bytes", bytes));
}

}  // namespace

StagingPool::Lease& StagingPool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pool_ = std::exchange(other.pool_, nullptr);
  memory_ = std::exchange(other.memory_, nullptr);
  slot_bytes_ = std::exchange(other.slot_bytes_, 0);
  payload_ = std::exchange(other.payload_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void StagingPool::Lease::Release() {
  if (pool_ == nullptr) return;
  pool_->Return(memory_, slot_bytes_);
  pool_ = nullptr;
  memory_ = nullptr;
  slot_bytes_ = 0;
  payload_ = nullptr;
  size_ = 0;
}

StagingPool::StagingPool(std::size_t limit_bytes, HostAllocator allocator)
    : limit_(limit_bytes), allocator_(OrPages(std::move(allocator))) {}

StagingPool::~StagingPool() { Trim(); }

absl::StatusOr<StagingPool::Lease> StagingPool::Acquire(
    std::size_t bytes, absl::Time deadline,
    const std::atomic<bool>* cancelled) {
  const std::size_t slot_bytes = SlotBytes(bytes);
  if (slot_bytes == 0) return OutOfMemory(bytes);
  void* memory = nullptr;
  Evicted evicted;
  {
    absl::MutexLock lock(&mu_);
    const void* const ticket = &evicted;  // Unique while this call lasts.
    queue_.push_back(ticket);
    const auto is_cancelled = [cancelled] {
      return cancelled != nullptr && cancelled->load(std::memory_order_acquire);
    };
    const auto is_next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return queue_.front() == ticket && Fits(slot_bytes);
    };
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return is_cancelled() || is_next();
    };
    mu_.AwaitWithDeadline(absl::Condition(&ready), deadline);
    const bool granted = is_next();
    queue_.erase(std::find(queue_.begin(), queue_.end(), ticket));
    if (is_cancelled()) {
      return absl::CancelledError("cancelled while waiting for staging memory");
    }
    if (!granted) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "no %d bytes of staging memory came free in time: %d of %d are lent",
          slot_bytes, in_use_, limit_));
    }
    memory = Book(slot_bytes, &evicted);
  }
  return Fill(bytes, slot_bytes, memory, evicted);
}

std::optional<StagingPool::Lease> StagingPool::TryAcquire(std::size_t bytes) {
  const std::size_t slot_bytes = SlotBytes(bytes);
  if (slot_bytes == 0) return std::nullopt;
  void* memory = nullptr;
  Evicted evicted;
  {
    absl::MutexLock lock(&mu_);
    if (!queue_.empty() || !Fits(slot_bytes)) return std::nullopt;
    memory = Book(slot_bytes, &evicted);
  }
  absl::StatusOr<Lease> lease = Fill(bytes, slot_bytes, memory, evicted);
  if (!lease.ok()) return std::nullopt;
  return *std::move(lease);
}

void StagingPool::WakeCancelled() {
  // Leaving the lock evaluates the conditions of all who wait.
  absl::MutexLock lock(&mu_);
}

std::size_t StagingPool::in_use() const {
  absl::MutexLock lock(&mu_);
  return in_use_;
}

std::size_t StagingPool::reserved() const {
  absl::MutexLock lock(&mu_);
  return reserved_;
}

void StagingPool::Trim() {
  Evicted evicted;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [slot_bytes, buffers] : kept_) {
      for (void* const memory : buffers) {
        evicted.emplace_back(memory, slot_bytes);
        reserved_ -= slot_bytes;
      }
    }
    kept_.clear();
  }
  Free(evicted);
}

bool StagingPool::Fits(std::size_t slot_bytes) const {
  if (in_use_ == 0 || kept_.contains(slot_bytes)) return true;
  return in_use_ <= limit_ && slot_bytes <= limit_ - in_use_;
}

void* StagingPool::Book(std::size_t slot_bytes, Evicted* evicted) {
  in_use_ += slot_bytes;
  const auto kept = kept_.find(slot_bytes);
  if (kept != kept_.end()) {
    void* const memory = kept->second.back();
    kept->second.pop_back();
    if (kept->second.empty()) kept_.erase(kept);
    return memory;
  }
  reserved_ += slot_bytes;
  while (reserved_ > limit_ && !kept_.empty()) {
    const auto largest = std::prev(kept_.end());
    evicted->emplace_back(largest->second.back(), largest->first);
    reserved_ -= largest->first;
    largest->second.pop_back();
    if (largest->second.empty()) kept_.erase(largest);
  }
  return nullptr;
}

absl::StatusOr<StagingPool::Lease> StagingPool::Fill(std::size_t bytes,
                                                     std::size_t slot_bytes,
                                                     void* memory,
                                                     const Evicted& evicted) {
  Free(evicted);
  if (memory == nullptr) memory = Allocate(slot_bytes);
  if (memory == nullptr) {
    Trim();
    memory = Allocate(slot_bytes);
  }
  if (memory == nullptr) {
    absl::MutexLock lock(&mu_);
    in_use_ -= slot_bytes;
    reserved_ -= slot_bytes;
    return OutOfMemory(bytes);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t offset =
      AlignUp(address + kPrefixBytes, kAlignment) - address;
  Lease lease;
  lease.pool_ = this;
  lease.memory_ = memory;
  lease.slot_bytes_ = slot_bytes;
  lease.payload_ = static_cast<std::byte*>(memory) + offset;
  lease.size_ = bytes;
  return lease;
}

void* StagingPool::Allocate(std::size_t bytes) const {
  void* memory = nullptr;
  internal::GuardedCall("allocate", [&] {
    memory = allocator_.allocate(bytes);
  }).IgnoreError();
  return memory;
}

void StagingPool::Return(void* memory, std::size_t slot_bytes) {
  {
    absl::MutexLock lock(&mu_);
    if (reserved_ <= limit_) {
      in_use_ -= slot_bytes;
      kept_[slot_bytes].push_back(memory);
      return;
    }
  }
  // One above the limit is lent alone. It stays on the books until it is gone,
  // so that its successor is not allocated beside it.
  allocator_.free(memory, slot_bytes);
  absl::MutexLock lock(&mu_);
  in_use_ -= slot_bytes;
  reserved_ -= slot_bytes;
}

void StagingPool::Free(const Evicted& evicted) {
  for (const auto& [memory, slot_bytes] : evicted) {
    allocator_.free(memory, slot_bytes);
  }
}

std::size_t DefaultStagingBytes() {
  constexpr std::size_t kMost = std::size_t{4} << 30;
  constexpr std::size_t kLeast = std::size_t{64} << 20;
  std::uint64_t memory = kMost * 8;
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page > 0) {
    memory =
        static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  // The limit of a container, whose own cgroup is the root that it sees.
  for (const char* const path :
       {"/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::uint64_t limit = 0;
    if (file >> limit && limit > 0) memory = std::min(memory, limit);
  }
  return std::clamp(static_cast<std::size_t>(memory / 8), kLeast, kMost);
}

}  // namespace ckptree
