// SPDX-License-Identifier: Apache-2.0

// A disk whose room somebody else takes.

#ifndef CKPTREE_KV_TESTING_CONTESTED_DISK_H_
#define CKPTREE_KV_TESTING_CONTESTED_DISK_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace ckptree::kv {

// Only tables, and files of staging, need room on it; what fallocate(2) gave a
// file stays that file's.
//
// Thread-safe.
struct ContestedDisk {
  enum class Taken {
    kNever,
    kBehindTheLook,  // As soon as somebody has asked what is free.
    kBehindTheHold,  // As soon as a file got room ahead of its bytes.
  };
  std::atomic<Taken> taken{Taken::kNever};
  std::atomic<bool> full{false};
  std::atomic<bool> can_hold{true};   // Else it has no fallocate(2).
  std::atomic<bool> by_quota{false};  // Full is who writes, not the disk.
  std::atomic<int> times_taken{0};
  std::atomic<int> refusals{0};  // Bytes, or room ahead, of what needs it.
};

// For Options::file_system: the real one, but for that. `disk` must outlive it.
std::shared_ptr<void> MakeContestedDisk(ContestedDisk* disk);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_CONTESTED_DISK_H_
