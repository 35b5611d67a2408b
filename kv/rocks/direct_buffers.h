// SPDX-License-Identifier: Apache-2.0

// Memory that the disk reads into.

#ifndef CKPTREE_KV_ROCKS_DIRECT_BUFFERS_H_
#define CKPTREE_KV_ROCKS_DIRECT_BUFFERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <utility>

namespace ckptree::kv {

// Buffers of a few pages that lie in one piece of memory, as far as the system
// has such. A disk that is to fill arrays itself is told of each of their
// pages, which are anywhere: on a virtual disk that halved its speed. A buffer
// is one piece for it, and from there the bytes are copied while the processor
// has them in its cache.
//
// Thread-safe, and without a lock: a process that is forked off in the meantime
// can use it. Keeps as many as were in use at once, for good.
class DirectBuffers {
 public:
  // Of each.
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  // More are not lent at once.
  static constexpr std::size_t kMost = 64;

  // One buffer, given back on destruction. Confined to one thread at a time.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : owner_(other.owner_),
          memory_(std::exchange(other.memory_, nullptr)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (memory_ != nullptr) owner_->Keep(memory_);
    }

    // At a page; empty where there is no memory, or where too many are lent.
    std::span<std::byte> bytes() const {
      return {memory_, memory_ == nullptr ? 0 : kBytes};
    }

   private:
    friend class DirectBuffers;
    Lease(DirectBuffers* owner, std::byte* memory)
        : owner_(owner), memory_(memory) {}

    DirectBuffers* owner_;
    std::byte* memory_;
  };

  constexpr DirectBuffers() = default;
  DirectBuffers(const DirectBuffers&) = delete;
  DirectBuffers& operator=(const DirectBuffers&) = delete;

  // Those of this process.
  static DirectBuffers& Shared();

  Lease Take();

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  void Keep(std::byte* memory);

  std::array<std::atomic<std::byte*>, kMost> idle_{};
  std::atomic<std::size_t> made_{0};
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_DIRECT_BUFFERS_H_
