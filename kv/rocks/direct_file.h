// SPDX-License-Identifier: Apache-2.0

// Reading a file past the page cache.

#ifndef CKPTREE_KV_ROCKS_DIRECT_FILE_H_
#define CKPTREE_KV_ROCKS_DIRECT_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/base/call_once.h"
#include "kv/files/descriptor.h"

namespace ckptree::kv {

// Large reads of what is not in the page cache go from the disk to their place,
// without a page made and a byte copied in between (O_DIRECT). What is in the
// page cache, in part or whole, is left to a reader that goes through it.
//
// Thread-safe.
class DirectFile {
 public:
  // Nothing is opened before it is read.
  explicit DirectFile(std::string path) : path_(std::move(path)) {}
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // How many descriptors it has open by now; those that it opens at its first
  // read.
  std::size_t descriptors() const { return opened_.load() ? kDescriptors : 0; }
  static constexpr std::size_t kDescriptors = 2;

  // True where Read() would do it: the place in the file and that in memory are
  // at a page, it is large, little of it is in the page cache, and the file can
  // be opened like this.
  bool Wants(std::uint64_t offset, std::span<const std::byte> destination);

  // Fills as many of the first bytes as it can, whole pages, and returns how
  // many; what is left is for another reader. 0 where it does not want to.
  std::size_t Read(std::uint64_t offset, std::span<std::byte> destination);

 private:
  // Negative where the file cannot be opened.
  int Direct();

  const std::string path_;
  absl::once_flag once_;
  std::atomic<bool> opened_{false};
  Descriptor direct_{-1};
  Descriptor cached_{-1};  // To ask what is in the page cache.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_DIRECT_FILE_H_
