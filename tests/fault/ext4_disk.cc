// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/ext4_disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptree::testing {
namespace {

// From fs/ext4/ext4.h, which no header of the system repeats.
constexpr unsigned long kShutdown = 0x8004587d;  // _IOR('X', 125, __u32)
constexpr std::uint32_t kFlushLog = 1;
constexpr std::uint32_t kNoFlush = 2;

absl::Status CannotHere(const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

// Of a loop device that goes when nobody holds it; -1 with errno.
int AttachLoop(int image, std::string* device) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return -1;
  int loop = -1;
  // Somebody else may take the free one first.
  for (int attempt = 0; attempt < 20 && loop < 0; ++attempt) {
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) break;
    *device = absl::StrCat("/dev/loop", number);
    loop = open(device->c_str(), O_RDWR | O_CLOEXEC);
    if (loop < 0) break;
    loop_config config = {};
    config.fd = static_cast<std::uint32_t>(image);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) break;
    const int error = errno;
    close(loop);
    loop = -1;
    errno = error;
    if (error != EBUSY) break;
  }
  const int error = errno;
  close(control);
  errno = error;
  return loop;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ext4Disk>> Ext4Disk::Make(
    const std::string& folder, std::uint64_t bytes) {
  if (geteuid() != 0) {
    return absl::FailedPreconditionError("needs root, to mount");
  }
  const std::string image = folder + "/image";
  const int file =
      open(image.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return CannotHere(image);
  }
  const std::string make = absl::StrCat(
      "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F ", image, " 2>&1");
  if (std::system(make.c_str()) != 0) {
    close(file);
    return absl::FailedPreconditionError("mkfs.ext4 does not run here");
  }
  std::string device;
  const int loop = AttachLoop(file, &device);
  const absl::Status attached =
      loop < 0 ? CannotHere("no loop device " + device) : absl::OkStatus();
  close(file);
  if (!attached.ok()) return attached;
  std::unique_ptr<Ext4Disk> disk(
      new Ext4Disk(folder + "/disk", std::move(device), loop));
  mkdir(disk->path().c_str(), 0700);
  if (unshare(CLONE_NEWNS) != 0 ||
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return CannotHere("mounts of our own");
  }
  if (absl::Status status = disk->Mount(); !status.ok()) return status;
  return disk;
}

Ext4Disk::~Ext4Disk() {
  umount2(path_.c_str(), MNT_DETACH);
  close(loop_);
}

absl::Status Ext4Disk::Mount() const {
  if (mount(device_.c_str(), path_.c_str(), "ext4", 0, nullptr) != 0) {
    return CannotHere(absl::StrCat("mounting ", device_));
  }
  return absl::OkStatus();
}

absl::Status Ext4Disk::CutPower(bool flush_log) const {
  const int folder = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::uint32_t how = flush_log ? kFlushLog : kNoFlush;
  const bool cut = folder >= 0 && ioctl(folder, kShutdown, &how) == 0;
  const int error = errno;
  if (folder >= 0) close(folder);
  errno = error;
  return cut ? absl::OkStatus() : CannotHere("EXT4_IOC_SHUTDOWN");
}

absl::Status Ext4Disk::Remount() const {
  if (umount(path_.c_str()) != 0) return CannotHere("umount " + path_);
  return Mount();
}

}  // namespace ckptree::testing
