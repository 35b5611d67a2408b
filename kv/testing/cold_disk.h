// SPDX-License-Identifier: Apache-2.0

// A disk of which nothing is in the page cache but what was asked for.

#ifndef CKPTREE_KV_TESTING_COLD_DISK_H_
#define CKPTREE_KV_TESTING_COLD_DISK_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace ckptree::kv {

// What was done to files that are read at any place, by all threads.
struct ColdDiskCounts {
  // Reads of bytes that nobody had asked for, and of those that somebody had.
  std::atomic<std::uint64_t> late = 0;
  std::atomic<std::uint64_t> ready = 0;
  std::atomic<std::uint64_t> asked = 0;  // Calls that ask.
  std::atomic<bool> cold = true;         // False: no read is late.
};

// For Options::file_system: the real one, whose late reads take as long as
// those of a disk. `counts` outlives it.
std::shared_ptr<void> MakeColdDisk(ColdDiskCounts* counts);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_COLD_DISK_H_
