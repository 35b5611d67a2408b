// SPDX-License-Identifier: Apache-2.0

// A disk that takes so many bytes a second.

#ifndef CKPTREE_KV_TESTING_SLOW_DISK_H_
#define CKPTREE_KV_TESTING_SLOW_DISK_H_

#include <cstdint>
#include <memory>

namespace ckptree::kv {

// For Options::file_system: the real one, whose writers wait until all that was
// written by now would be on such a disk.
std::shared_ptr<void> MakeSlowDisk(std::uint64_t bytes_per_second);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_SLOW_DISK_H_
