// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_KV_FILE_WATCH_H_
#define CKPTREE_KV_FILE_WATCH_H_

#include <string>

#include "absl/time/time.h"

namespace ckptree::kv {

// Wakes who waits for files that processes of this host write. What another
// host writes to a shared folder wakes nobody: the clock does, and files have
// to be looked at after each wait. By inotify(7).
//
// Thread-safe; of threads that wait at once one may be woken alone.
class FileWatch {
 public:
  // Of a file that exists, or of all files of a folder. Where the system has no
  // more watches to give, the clock alone ends a wait.
  explicit FileWatch(const std::string& path);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Another file or folder, too. False where it is not there, or cannot be
  // watched.
  bool Add(const std::string& path);

  // True once something was written since this was made or said so last, or
  // Wake() was called; false after `timeout`.
  bool Wait(absl::Duration timeout);

  // Ends a wait, or the next one.
  void Wake();

 private:
  int fd_ = -1;    // -1: nothing is watched.
  int wake_ = -1;  // -1: the system had no descriptor for it.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILE_WATCH_H_
