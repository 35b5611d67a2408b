// SPDX-License-Identifier: Apache-2.0

// Reading a file past the page cache.

#ifndef CKPTREE_KV_ROCKS_DIRECT_FILE_H_
#define CKPTREE_KV_ROCKS_DIRECT_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kv/files/descriptor.h"
#include "kv/rocks/direct_buffers.h"

namespace ckptree::kv {

// Large reads of what is not in the page cache go past it (O_DIRECT): into a
// buffer, and from there to their place, wherever that is, without a page made
// in the page cache. What is in it, in part or whole, is left to a reader that
// goes through it.
//
// Thread-safe. The file stays as it is while this is there.
class DirectFile {
 public:
  // Nothing is opened before it is read.
  explicit DirectFile(std::string path) : path_(std::move(path)) {}
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // How many descriptors it has open by now; those that it opens at its first
  // read.
  std::size_t descriptors() const { return opened_.load() ? kDescriptors : 0; }
  static constexpr std::size_t kDescriptors = 1;

  // How a large read comes to its bytes.
  enum class Way {
    kDirect,   // By Read().
    kInCache,  // All of them seem to be in the page cache.
    kOther,    // It is small, or some of them are there, or nobody knows.
  };
  Way WayOf(std::uint64_t offset, std::size_t bytes);

  using PieceFn = absl::FunctionRef<void(std::span<const std::byte> piece)>;

  // Fills as many of the first bytes as it can and returns how many; what is
  // left is for another reader. 0 where WayOf() is not kDirect. Calls
  // `on_piece` for them, piece by piece, in order, when they are in place.
  std::size_t Read(std::uint64_t offset, std::span<std::byte> destination,
                   DirectBuffers* buffers, PieceFn on_piece);

 private:
  void Open();
  // How much of these bytes is in the page cache, by some of their pages; less
  // than 0 where that cannot be told.
  double ShareInCache(std::uint64_t offset, std::size_t bytes) const;

  const std::string path_;
  std::once_flag once_;
  std::atomic<bool> opened_{false};
  Descriptor direct_{-1};
  // Of the file, to ask what is in the page cache: nobody reads there.
  void* mapping_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_DIRECT_FILE_H_
