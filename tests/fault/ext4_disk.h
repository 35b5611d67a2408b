// SPDX-License-Identifier: Apache-2.0

// An ext4 of our own whose power can be cut.

#ifndef CKPTREE_TESTS_FAULT_EXT4_DISK_H_
#define CKPTREE_TESTS_FAULT_EXT4_DISK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::testing {

// An image in a folder, on a loop device, mounted where only this process and
// its children see it: it all goes with them, however they end.
class Ext4Disk {
 public:
  // Makes it of `bytes` in `folder`, which is there. kFailedPrecondition where
  // this machine cannot: not root, no loop device, no mkfs.ext4, no ext4.
  //
  // Mounts of this process are its own from then on. REQUIRES: one thread.
  static absl::StatusOr<std::unique_ptr<Ext4Disk>> Make(
      const std::string& folder, std::uint64_t bytes);

  ~Ext4Disk();
  Ext4Disk(const Ext4Disk&) = delete;
  Ext4Disk& operator=(const Ext4Disk&) = delete;

  const std::string& path() const { return path_; }  // Where it is mounted.

  // What is not on the disk is lost, from now on every call fails. Where
  // `flush_log`, the journal is written first. Async-signal-safe; also for
  // children.
  absl::Status CutPower(bool flush_log) const;

  // After a cut: recovers its journal. REQUIRES: nobody has a file of it open.
  absl::Status Remount() const;

 private:
  Ext4Disk(std::string path, std::string device, int loop)
      : path_(std::move(path)), device_(std::move(device)), loop_(loop) {}

  absl::Status Mount() const;

  const std::string path_;
  const std::string device_;
  const int loop_;  // Keeps the device while it is not mounted.
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_EXT4_DISK_H_
