// SPDX-License-Identifier: Apache-2.0

// A file opened by the system's own calls: locks and leases, which RocksDB's
// file systems know nothing of.

#ifndef CKPTREE_KV_FILES_DESCRIPTOR_H_
#define CKPTREE_KV_FILES_DESCRIPTOR_H_

#include <fcntl.h>
#include <sys/types.h>

#include <string>

namespace ckptree::kv {

// Closes what it owns. Confined to one thread.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }  // Negative: opening failed, see errno.
  void Reset(int fd);              // Closes what it owned.
  int Release();

 private:
  int fd_;
};

// openat(2), closed on exec; again where a signal interrupted it, as it can on
// a file system of the network.
int OpenAt(int folder, const std::string& path, int flags, mode_t mode = 0);

// The lock of a whole file for writing.
struct flock WholeFile();
// Takes it, without waiting, for the open file description; errno says why not.
bool TryLock(int fd);
// True where somebody has it, or where that cannot be told.
bool IsLocked(int fd);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_DESCRIPTOR_H_
