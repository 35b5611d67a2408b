// SPDX-License-Identifier: Apache-2.0

// A disk without room until a file is given up.

#ifndef CKPTREE_KV_TESTING_FULL_DISK_H_
#define CKPTREE_KV_TESTING_FULL_DISK_H_

#include <atomic>
#include <memory>
#include <string>

namespace ckptree::kv {

struct FullDisk {
  // While there is a file of this path no new file is made whose name begins
  // with `refused`, and no byte is free.
  std::string takes_the_room;
  std::string refused;
  std::atomic<int> refusals{0};
};

// For Options::file_system: the real one, but for that. `disk` must outlive it.
std::shared_ptr<void> MakeFullDisk(FullDisk* disk);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_FULL_DISK_H_
