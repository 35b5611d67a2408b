// SPDX-License-Identifier: Apache-2.0

#include "kv/files/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ckptree::kv {

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

void Descriptor::Reset(int fd) {
  const Descriptor before(std::exchange(fd_, fd));
}

int Descriptor::Release() { return std::exchange(fd_, -1); }

int OpenAt(int folder, const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = openat(folder, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

struct flock WholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool TryLock(int fd) {
  struct flock lock = WholeFile();
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool IsLocked(int fd) {
  struct flock lock = WholeFile();
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace ckptree::kv
